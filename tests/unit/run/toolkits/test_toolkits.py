"""The baseline in other toolkits: the text and settings that they get, and what is scored."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

from shapeshift._system.errors import ShapeshiftError
from shapeshift.data.prepare import prepare
from shapeshift.evaluation.metrics import score_corpus
from shapeshift.run.folder import Run
from shapeshift.run.measures import MEASURES, OPTIONAL, find_measure, usable
from shapeshift.run.toolkits import average_fairseq
from shapeshift.run.toolkits import baseline as running
from shapeshift.run.toolkits.baseline import (
    TEST_SPLITS,
    Baseline,
    Toolkit,
    export,
    join,
    run_commands,
)
from shapeshift.run.toolkits.fairseq import FAIRSEQ
from shapeshift.run.toolkits.opennmt import OPENNMT
from shapeshift.study.work import Order

TOOLKITS = ("fairseq", "opennmt-py")
SETTINGS = (
    "position=ape", "decoding={beam: 6, length_penalty: {name: none}}", "model.decoder_layers=3",
    "training.schedule={name: noam, factor: 2.0, warmup_updates: 100, peak: null}",
    "training.accumulation=3",
    "training.batch={max_tokens: 700, max_sentences: null}",
    "training.max_updates=50", "training.checkpoint_every=20",
)  # fmt: skip


@pytest.fixture(scope="module")
def data(make_config, prepared):
    return prepare(make_config().data, prepared / "toolkits")


@pytest.fixture
def baseline(make_config, data, tmp_path):
    """overrides → what a toolkit gets"""
    folder = tmp_path / "it"
    folder.mkdir()
    return lambda *overrides: Baseline(
        make_config(*SETTINGS, *overrides), data, tmp_path / "text", folder, False
    )


def test_text_is_written_as_numbers_and_read_back(data, baseline):
    run, (_, references) = baseline(), data.text("test")
    export(data, run.text)
    lines = (run.text / "test.tgt").read_text(encoding="utf-8").splitlines()
    assert len(lines) == len(references) - 1  # the empty pair is left out
    assert {x for line in lines for x in line.split()} <= {*run.vocabularies["tgt"], "<unk>"}
    assert len(run.vocabularies["src"]) == data.subwords.source_size - 4
    assert join(lines, data, "test") == references
    assert join(["<unk>", *lines[1:]], data, "test")[0] == data.subwords.decode_target([1])
    with pytest.raises(ShapeshiftError, match="wrote 1 translations of test, expected 20"):
        join(lines[:1], data, "test")


def test_a_toolkit_s_translations_are_scored_as_ours(make_config, data, tmp_path):
    def copy(run, programs):
        run.directory.mkdir()
        files = {split: (run.text / f"{split}.tgt", run.directory / split) for split in TEST_SPLITS}
        return {split: [programs["cp"], *map(str, pair)] for split, pair in files.items()}

    def read(run, split):
        return (run.directory / split).read_text().splitlines()

    measure = Toolkit("copying", ("cp",), "", copy, read)
    config = make_config(*SETTINGS, "evaluation.tokenize=char")
    rows = measure(Run.create(tmp_path / "run" / "run", config), data)
    [bleu] = score_corpus(*[data.text("test")[1]] * 2, ["bleu"], tokenizer="char")
    assert [row.split for row in rows] == ["valid", "valid mean", "test", "test mean"]
    assert {(row.metric, row.bucket) for row in rows} == {("BLEU", "copying")}
    assert (rows[2].value, rows[2].signature) == (bleu.value, bleu.signature)
    assert (tmp_path / "run" / "toolkits" / "copying" / "test.done").exists()


def commands_of(toolkit, run, folder):
    """Return the commands of a toolkit whose programs are in a folder, by this Python."""
    (folder / "fairseq-train").write_text(f"#!{sys.executable}\n")
    return toolkit.commands(run, {name: str(folder / name) for name in toolkit.programs})


def after(words, option):
    return words[words.index(option) + 1]


def test_fairseq_gets_the_same_hyperparameters(baseline, tmp_path):
    run = baseline()
    commands = commands_of(FAIRSEQ, run, tmp_path)
    assert [*commands] == ["preprocess", "train", "average", "translate-valid", "translate-test"]
    train, translate = commands["train"], commands["translate-test"]
    assert float(after(train, "--lr")) == pytest.approx(2.0 * (32 * 100) ** -0.5)
    wanted = {"--max-tokens": "700", "--update-freq": "3", "--decoder-layers": "3"}
    assert {option: after(train, option) for option in wanted} == wanted
    assert {"--share-all-embeddings", "--encoder-normalize-before", "--cpu"} <= {*train}
    assert after(translate, "--beam") == "6"
    assert "--unnormalized" in translate
    assert after(translate, "--results-path") == str(run.directory)
    (run.directory / "generate-test.txt").write_text("S-0\tx\nH-1\t-0.5\t7 8\nH-0\t-0.5\t5 6\n")
    assert FAIRSEQ.translations(run, "test") == ["5 6", "7 8"]


FAIRSEQ_MODULE = """
from torch import tensor

class checkpoint_utils:
    def load_checkpoint_to_cpu(path):
        update = int(open(path).read())
        weights = {"weight": tensor(float(update))}
        return {
            "optimizer_history": [{"num_updates": update}], "model": weights,
            "last_optimizer_state": None,
        }

    def torch_persistent_save(state, path):
        open(path, "w").write(f"{float(state['model']['weight'])} {sorted(state)}")
"""


def test_the_last_checkpoints_of_fairseq_are_averaged(tmp_path, monkeypatch):
    (tmp_path / "fairseq.py").write_text(FAIRSEQ_MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    for name, update in {"1_20": 20, "2_40": 40, "last": 50, "best": 20}.items():
        (tmp_path / f"checkpoint_{name}.pt").write_text(str(update))
    average_fairseq.main(str(tmp_path), "2", str(tmp_path / "mean"))
    assert (tmp_path / "mean").read_text() == "45.0 ['model', 'optimizer_history']"


def test_opennmt_gets_the_same_hyperparameters(baseline, tmp_path):
    run = baseline()
    commands = commands_of(OPENNMT, run, tmp_path)
    settings = yaml.safe_load((run.directory / "train.yaml").read_text())
    assert settings["learning_rate"] == pytest.approx(2.0)
    wanted = {"batch_type": "tokens", "batch_size": 700, "accum_count": [3], "dec_layers": 3}
    wanted |= {"share_embeddings": True, "bucket_size": 120}
    assert settings.items() >= wanted.items()
    models = [Path(word).name for word in commands["average"][2:4]]
    assert models == ["model_step_40.pt", "model_step_50.pt"]
    assert after(commands["translate-test"], "-beam_size") == "6"
    other = "{name: inverse_sqrt, peak: 0.003, warmup_updates: 300, factor: null}"
    commands_of(OPENNMT, baseline(f"training.schedule={other}"), tmp_path)
    settings = yaml.safe_load((run.directory / "train.yaml").read_text())
    assert settings["learning_rate"] == pytest.approx(0.003 * (32 * 300) ** 0.5)


@pytest.mark.parametrize(
    ("toolkit", "overrides", "message"),
    [
        (FAIRSEQ, ["position=shape"], "set position=ape"),
        (OPENNMT, ["training.final_weights=best"], "set training.final_weights=average"),
        (OPENNMT, ["model.norm=post"], "set model.norm=pre"),
        (FAIRSEQ, ["model.tie_output=false"], "set model.tie_output=true"),
    ],
)
def test_what_a_toolkit_cannot_repeat_is_refused(baseline, tmp_path, toolkit, overrides, message):
    with pytest.raises(ShapeshiftError, match=message):
        commands_of(toolkit, baseline(*overrides), tmp_path)


def test_toolkits_that_are_not_there_are_left_out_with_a_line_each(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(running.sys, "executable", str(tmp_path / "python"))
    assert {*TOOLKITS} == OPTIONAL <= MEASURES.keys()
    names, lines = usable(["score-test", *TOOLKITS])
    assert names == ["score-test"]
    assert "fairseq is left out: fairseq-preprocess is not on the PATH; pip install" in lines[0]
    assert len(lines) == len(TOOLKITS)
    with pytest.raises(ShapeshiftError, match="fairseq is left out"):
        find_measure("fairseq")(None, None)


def test_commands_that_are_done_are_not_run_again_unless_something_before_them_changed(tmp_path):
    def run(*texts):
        code = "import sys; open('ran', 'a').write(sys.argv[1]); sys.exit(sys.argv[2] or None)"
        commands = {
            f"c{n}": (sys.executable, "-c", code, text, "end" * (len(text) > 1))
            for n, text in enumerate(texts)
        }
        run_commands(commands, tmp_path)

    for _ in range(2):
        run("1", "2")
    run("3", "2")
    assert (tmp_path / "ran").read_text() == "1232"
    for _ in range(2):  # one that fails is run again
        with pytest.raises(ShapeshiftError, match=r"c1\.log: python.* status 1: end"):
            run("3", "44", "5")
    assert (tmp_path / "ran").read_text() == "12324444"


WORK = """
import sys
from shapeshift.study import work
from shapeshift.run.toolkits.baseline import run_commands
code = "import os, time; open('pid', 'w').write(str(os.getpid())); time.sleep(60)"
work.attempt = lambda order: run_commands({"a": (sys.executable, "-c", code)}, order.folder)
sys.exit(work.main())
"""


@pytest.mark.long
def test_a_signal_to_the_work_on_a_cell_ends_the_program_as_well(tmp_path):
    own = {"folder": tmp_path, "prepared_root": tmp_path, "config": {}, "measures": ()}
    order = Order(**own, command="", sources="")
    arguments = (sys.executable, "-c", WORK, order.model_dump_json())
    pid = tmp_path / "pid"
    with subprocess.Popen(arguments, stdin=subprocess.PIPE) as parent:
        wait_for(lambda: pid.exists() and pid.read_text())
        parent.terminate()
        assert parent.wait(30) == 128 + signal.SIGTERM
    wait_for(lambda: not Path("/proc", pid.read_text()).exists())


def wait_for(condition):
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)
