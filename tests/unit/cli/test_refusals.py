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
    (f"{TRAIN} training.max_updates=many", "training.max_updates: expected a whole number, got"),
    (f"{TRAIN} model.size=huge", "model.size: expected 'tiny', 'small', 'base' or 'big', got"),
    (f"{TRAIN} model=big", "model: expected a section of settings, got 'big'"),
    (f"{TRAIN} data.corpus.train='[]'", "data.corpus.train: expected 1 or more entries, got []"),
    (f"{TRAIN} data.corpus.train='[train.en]'", "without the ending of its language: train"),
    (f"{TRAIN} training.device=cuda:99", "use auto or cpu"),
    (
        f"{TRAIN} position=learned position.parts.0.num_positions=20",
        "tokens, and the model has positions for 20; add 44 to num_positions",
    ),
    ("train mine.yaml --run run training.seed=7", "holds a run with another training.seed"),
    (f"{INIT} --train nothing", "no such file"),
    (f"{INIT} --train text/empty", "text/empty.en: has no lines; expected training text"),
    (f"{INIT} --train text/train --valid text/valid --test text/empty", "text/empty.en: has no"),
    (f"{INIT} --train text/all.tsv", "cut -f1 text/all.tsv > text/all.en; cut -f2 text/all.tsv >"),
    (f"{INIT} --train text", "text is a folder: name the text in it (in it are text/empty,"),
    (f"{INIT} --train text/trian", "did you mean 'text/train'?"),
    (f"{INIT} --train text/train --target DE", "there are text/train.de, text/train.en"),
    (f"{INIT} --train text/train --output text.yaml", "text/train.en: exists already"),
    (f"{TRAIN} data.corpus.train='[all.tsv]'", "cut -f1 text/all.tsv > text/all.en"),
    (f"{TRAIN} data.corpus.test='[short]'", "text/short.en has 20 lines but text/short.de has 21"),
    (f"{TRAIN} data.corpus.test='[empty]'", "text/empty.en: has no lines"),
    ("train study.yaml", "use `shapeshift reproduce study.yaml`"),
    ("compare study.yaml", "use `shapeshift reproduce study.yaml`"),
    ("prepare blank.yaml", "blank.yaml: is empty"),
    ("compare blank.yaml", "blank.yaml: is empty"),
    ("reproduce mine.ymal", "mine.ymal: no such file; did you mean 'mine.yaml'?"),
    ("reproduce shapes/table2", "shapes/table2: no such file"),
    (f"{INIT} --train text/train --output mine.yaml", "exists already"),
    ("positions rop", "did you mean 'rope'"),
    ("translate text", "text: not a run"),
    ("translate .", "in it are per-head-run, run: name one"),
    ("translate rum text/test.en", "did you mean 'run'?"),
    ("translate run/config.yaml", "name its folder, run"),
    ("translate run text/test.en --engine int8", "there are torch; to make one: shapeshift export"),
    ("translate run text/test.en --engine ctranslate2-int8", "run --to ctranslate2 --quantization"),
    ("translate run text/test.en missing", "missing: no such file"),
    ("translate run text/test.en --n-best 5", "set decoding.beam=5"),
    ("score bad text/test.de", "bad:2: not UTF-8: byte 0xe9 at byte 6"),
    ("score text/test.de text/train.de", "5 hypotheses but 60 references"),
    ("score none text/train.de", "none: no such file"),
    (f"{SAME} --metric ter", "unknown metric 'ter'"),
    (f"{SAME} --metric bleu,ter", "unknown metric 'ter'"),
    (f"{SAME} --tokenize chars", "did you mean 'char'?"),
    (f"{SAME} --paired missing", "missing: no such file"),
    (f"{SAME} --paired text/train.de", "text/train.de: has 60 lines, but there are 5 references"),
    ("compare mine.yaml training.max_update=3", "max_updates"),
    ("compare mine.yaml --system 'rope position=ape'", "position.name is given twice"),
    (
        "compare mine.yaml --system 'kerple position=rope'",
        "system named 'kerple', but it is rotary",
    ),
    ("reproduce mine.yaml", "shapeshift compare mine.yaml"),
    ("reproduce shape:figure4 --grid shaw-table2", "needs dataset, position"),
    ("reproduce shape:figure4 --grid shape-tabel2", "did you mean 'shape-table2'"),
    ("reproduce studdy.yaml", "studdy.yaml"),
]
MISUSED = [
    ("scor", "no such command 'scor'; did you mean 'score'?"),
    ("--nonsense", "--nonsense"),
    ("score", "HYPOTHESES"),
    ("train mine.yaml --position rope", "position=rope"),
    ("train mine.yaml --beam=4", "decoding.beam=VALUE"),
    ("train mine.yaml --lr 0.1", "training.schedule.peak=0.1"),
    ("train mine.yaml --set model.dim=4", "KEY=VALUE"),
    ("train mine.yaml --num-train-epochs 3", "set training.max_updates"),
    ("train mine.yaml --dryrun", "--dry-run"),
    ("train position=rope", "configuration file before"),
    ("prepare position=rope", "configuration file before"),
    ("report position=rope", "has none"),
    (f"{INIT} --train mine --valid mine", "both --valid and --test"),
    (f"{INIT}", "is missing"),
    (f"{INIT} --train mine --target en", "as --source is"),
    ("translate run --beam 10", "--set decoding.beam=10"),
    ("translate run --max-tokens 10", "--set decoding.max_tokens=10"),
    ("translate run decoding.beam=10", "--set decoding.beam=10"),
    ("translate run a.txt decoding.beam=10", "--set decoding.beam=10"),
    ("translate run --set beam=10", "did you mean 'decoding.beam'"),
    ("translate run --set model.dropout=0.3", "has no effect on a trained model"),
    ("translate run --set position=rope", "has no effect on a trained model"),
    ("translate run text/test.en --on-long cut", "--on-long"),
    (f"{SAME} --paired text/test.en --metric comet", "leave comet out"),
    ("compare mine.yaml --position ape rope", "separated by commas: --position ape,rope"),
    ("compare mine.yaml --position ape,SHAPE", "did you mean 'shape'"),
    ("compare mine.yaml --position ape,kerple", "--system 'kerple position.name=kerple position."),
    ("compare mine.yaml --position ape,shappe", "did you mean 'shape'"),
    ("compare mine.yaml --position ape,ape", "'ape' is given twice"),
    ("compare mine.yaml --position ape,rope --position ape", "'ape' is given twice"),
    ("compare mine.yaml --system '../x position=ape'", "expected the name"),
    ("compare mine.yaml --system ''", "expected the name"),
    ("compare mine.yaml position=rope", "give --position PRESET"),
    ("compare mine.yaml training.seed=4", "--seeds"),
    ("demo training.seed=4", "--seeds"),
    ("reproduce study.yaml --grid shape-table2", "the study's file names its grid"),
    ("reproduce study.yaml --list", "see a study with --dry-run"),
    ("inspect run", "SENTENCE"),
    ("export", "RUN"),
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


def test_names_of_metrics_may_be_in_capitals(project):
    assert "BLEU 100" in shapeshift(project, *f"{SAME} --metric BLEU".split())[1]


def test_test_text_that_is_in_the_training_text_is_reported(project):
    options = "--train text/train --valid text/valid --test text/train --output overlap.yaml"
    status, _, err = shapeshift(project, *f"{INIT} {options}".split())
    assert status == 0
    assert "60 of 60 test sentences are in the training text" in err
