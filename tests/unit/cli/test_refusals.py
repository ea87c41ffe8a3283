"""A mistake gets one line that says what would work; dev/refusals.md shows more of them."""

from __future__ import annotations

import runpy
import shlex
from pathlib import Path

import pytest

from .running import shapeshift

PROGRAM = runpy.run_path(str(Path(__file__).parents[3] / "dev" / "refusals.py"))
TRAIN = "train mine.yaml --run new"
INIT = "init --output own.yaml --source en --target de"
SAME = "score text/test.de text/test.de"

REFUSED = [  # in text, settings and folders
    ("compare mine.yaml --position rope,rotary", "two names of the same run; leave one out"),
    (
        f"{TRAIN} position=learned position.parts.0.num_positions=20",
        "tokens, and the model has positions for 20; add 44 to num_positions",
    ),
    (
        "train mine.yaml --run run training.seed=7",
        "holds a run with another training.seed; name a new folder with --run, or continue this"
        " one: shapeshift train run/config.yaml --run run",
    ),
    (f"{TRAIN} data.corpus.root=~", "data.corpus.root: expected a path, got null"),
    (f"{TRAIN} data.corpus.root=no", "set data.corpus.root=PATH, the folder of the text"),
    (
        "reproduce study",
        "unknown paper 'study' (known: shape, shaw, nhk, beyond; or a study: study",
    ),
    ("train mine", "no configuration 'mine'; did you mean 'mine.yaml'?"),
    ("train text/train.en", "expected sections such as 'model:', got text"),
    ("translate .", "name a folder made by `shapeshift train`, such as per-head-run"),
    (f"{INIT} --train nothing", "no such file"),
    (f"{INIT} --train text", "there are text/"),
    (f"{INIT} --train text/trian", "there are text/train.en, "),
    (f"{TRAIN} data.corpus.test='[short]'", "text/short.en has 20 lines but text/short.de has 21"),
    ("train study.yaml", "use `shapeshift reproduce study.yaml`"),
    ("prepare blank.yaml", "blank.yaml: expected sections"),
    ("reproduce mine.ymal", "mine.ymal: no such file; did you mean 'mine.yaml'?"),
    (f"{INIT} --train text/train --output mine.yaml", "exists already"),
    ("translate rum text/test.en", "did you mean 'run'?"),
    ("translate run text/test.en --engine int8", "there are torch; to make one: shapeshift export"),
    (
        "translate run text/test.en --engine ../run/onnx",
        "expected the name of an engine of run (torch), got '../run/onnx'",
    ),
    (
        "translate run text/test.en --engine ctranslate2-int8",
        "shapeshift export run --to ctranslate2",
    ),
    ("translate run 'A sentence.'", "A sentence..gz; give a sentence on standard input"),
    ("translate run text/test.en missing", "missing: no such file"),
    ("translate run text/test.en --n-best 5", "set decoding.beam=5"),
    ("score bad text/test.de", "bad:2: not UTF-8: byte 0xe9 at byte 6"),
    (f"{SAME} --tokenize chars", "did you mean 'char'?"),
    (f"{SAME} --paired text/train.de", "text/train.de: has 60 lines, but there are 5 references"),
    (
        "compare mine.yaml --position ape --position 'kerple position=rope'",
        "position is given twice, position=kerple and position=rope",
    ),
    ("reproduce mine.yaml", "shapeshift compare mine.yaml"),
    ("reproduce shape:figure4 --grid shaw:table2", "needs position, recipe"),
]
MISUSED = [
    ("reproduce shape:table1 --scale small", "--scale is now --profile"),
    ("compare mine.yaml --system rope", "--system is now --position"),
    ("scor", "no such command 'scor'; did you mean 'score'?"),
    ("train mine.yaml --position rope", "position=VALUE"),
    ("train mine.yaml --lr 0.1", "training.schedule.peak=VALUE"),
    (f"{INIT} --train mine --valid mine", "both --valid and --test"),
    (f"{INIT}", "--train: is missing: training text, without .en or .de"),
    ("init --output own --source en --target de", "--output: expected a name such as own.yaml"),
    ("compare mine.yaml --positions ape,rope", "no such option --positions; did you mean --pos"),
    (
        "init --output own.yaml --source e/n --target de --train text/train",
        "--source: expected a name of letters",
    ),
    (
        "init --output own.yaml --source .de --target de --train text/train",
        "--target: is de, as --source is",
    ),
    ("translate run --beam 10", "--set decoding.beam=VALUE"),
    ("translate run --set beam=10", "what has: decoding,"),
    ("translate run text/test.en --on-long cut", "--on-long"),
    ("translate run text/test.en --output ./text/test.en", "would be replaced"),
    (f"{SAME} --paired text/test.en --metric comet", "leave comet out"),
    (f"{SAME} --comet-model X", "needs --metric comet"),
    (f"{SAME} --paired run/x --paired ./run/x", "--paired: run/x is given twice"),
    (f"{SAME} --metric chrf --tokenize zh", "applies to BLEU, which --metric leaves out"),
    ("compare mine.yaml --position ape rope", "separated by commas: --position ape,rope"),
    ("compare mine.yaml --position ape,shappe", "did you mean 'shape'"),
    ("compare mine.yaml --position ape,ape", "'ape' is given twice"),
    ("positions rope --explain --dtype bf17", "Invalid value for '--dtype': 'bf17' is not one"),
    ("compare mine.yaml training.seed=4", "give `shapeshift compare` --seeds NUMBER"),
    ("compare mine.yaml 'training={seed: 4}'", "give `shapeshift compare` --seeds NUMBER"),
    (
        "compare mine.yaml --position ape --position 'mine position=ape training.seed=4'",
        "training.seed=4: give",
    ),
    ("demo training.seed=4", "give `shapeshift compare` --seeds NUMBER"),
    ("reproduce study.yaml --grid shape:table2", "the study's file names its grid"),
    ("reproduce shape:offsets --slurm partition=x --jobs 0", "--jobs: 0 trains in this process"),
    ("reproduce shape --no-run --seed 1", "has no effect with --no-run"),
]


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    folder = tmp_path_factory.mktemp("project")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        PROGRAM["write_project"]()
    config = (folder / "run" / "config.yaml").read_bytes()
    yield folder
    assert (folder / "run" / "config.yaml").read_bytes() == config
    assert not {"own.yaml", "compared", "reproduced"} & {path.name for path in folder.iterdir()}


@pytest.mark.parametrize(
    ("typed", "advised"),
    [
        ("train 'my study.yaml'", "reproduce 'my study.yaml'"),
        ("reproduce 'my own.yaml'", "compare 'my own.yaml'"),
        ("translate 'my run' --engine int8", "export 'my run' --to ctranslate2 "),
        (
            "translate 'my run' --engine onnx --checkpoint best",
            "export 'my run' --checkpoint best --output ",
        ),
    ],
)
def test_a_command_that_is_advised_can_be_copied(project, tmp_path, typed, advised):
    for name in ("run", "study.yaml"):
        (tmp_path / f"my {name}").symlink_to(project / name)
    (tmp_path / "my own.yaml").symlink_to(project / "mine.yaml")
    _, _, err = shapeshift(tmp_path, *shlex.split(typed))
    assert f"shapeshift {advised}" in " ".join(err.split())


@pytest.mark.parametrize(
    ("command", "status", "remedy"),
    [(c, 1, remedy) for c, remedy in REFUSED] + [(c, 2, remedy) for c, remedy in MISUSED],
)
def test_the_answer_names_what_works(project, command, status, remedy):
    ended, out, err = shapeshift(project, *shlex.split(command))
    assert ended == status, err
    assert remedy in " ".join(err.split())
    if status == 1:
        assert err.splitlines()[-1].startswith("shapeshift: error: ")
    if command.startswith(("translate", "score")):
        assert out == ""
