"""The baseline in other toolkits, which programs of a few lines stand in for."""

import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest
import yaml

from shapeshift.config import parse_config
from shapeshift.data.prepare import prepare
from shapeshift.errors import ShapeshiftError
from shapeshift.evaluation.metrics import score_corpus
from shapeshift.lab.measures import MEASURES, OPTIONAL, find_measure, usable
from shapeshift.lab.run import Run
from shapeshift.lab.toolkits import baseline as running
from shapeshift.lab.toolkits.baseline import Baseline, export, join, run_commands
from shapeshift.lab.toolkits.fairseq import FAIRSEQ
from shapeshift.lab.toolkits.opennmt import OPENNMT
from shapeshift.lab.work import Order

TOOLKITS = {"fairseq": FAIRSEQ, "opennmt-py": OPENNMT}
WORDS = ["rot", "blau", "grün", "weiß", "gelb"]
LINES = {
    "train": [f"{a} {b}" for a in WORDS for b in WORDS],
    "valid": ["rot blau", "", "gelb"],
    "test": ["grün rot weiß", "blau"],
}


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Prepared text that is the same on both sides: who copies translates perfectly."""
    folder = tmp_path_factory.mktemp("copy")
    for split, lines in LINES.items():
        for language in ("src", "tgt"):
            text = "".join(f"{line}\n" for line in lines)
            (folder / f"{split}.{language}").write_text(text, encoding="utf-8")
    return prepare(make_config(folder).data, folder / "prepared")


def make_config(folder, *overrides):
    document = {
        "data": {
            "corpus": {
                "corpus": "files", "root": str(folder), "source": "src", "target": "tgt",
                **{split: [split] for split in LINES},
            },
            "subwords": {"vocab_size": 30},
        },
        "model": {
            "dim": 64, "num_heads": 4, "ff_dim": 96, "encoder_layers": 2, "decoder_layers": 3,
        },
        "training": {
            "max_updates": 50, "checkpoint_every": 20, "average_checkpoints": 2, "device": "cpu",
            "schedule": {"name": "noam", "factor": 2.0, "warmup_updates": 100},
            "batch": {"max_tokens": 700}, "accumulation": 3,
        },
        "decoding": {"beam": 6, "length_penalty": {"name": "none"}},
    }  # fmt: skip
    return parse_config(document, overrides)


@pytest.fixture
def make_run(data, tmp_path):
    """overrides → a run that has not begun"""
    root = data.report.config.corpus.root
    return lambda *overrides: Run.create(tmp_path / "cell" / "run", make_config(root, *overrides))


@pytest.fixture
def baseline(data, make_run, tmp_path):
    """overrides → what a toolkit gets"""
    return lambda *overrides: Baseline(
        make_run(*overrides).config, data, tmp_path / "text", tmp_path / "it", False
    )


FAKES = {
    # Each keeps its arguments, and copies the source where it should translate.
    "fairseq-preprocess": """
        files = {split: Path(value(f"--{split}pref") + ".src") for split in ("valid", "test")}
        copied = {split: file.read_text().splitlines() for split, file in files.items()}
        (binary / "copied.json").write_text(json.dumps(copied))
    """,
    "fairseq-train": """
        saved = Path(value("--save-dir"))
        saved.mkdir(exist_ok=True)
        for name, update in {"1_20": 20, "2_40": 40, "last": 50, "best": 20}.items():
            (saved / f"checkpoint_{name}.pt").write_text(str(update))
    """,
    "fairseq-generate": """
        split = value("--gen-subset")
        lines = json.loads((Path(sys.argv[1]) / "copied.json").read_text())[split]
        found = [f"H-{number}\\t-0.5\\t{line}" for number, line in enumerate(lines)]
        text = "\\n".join(["S-0\\tnoise", *reversed(found)])
        (Path(value("--results-path")) / f"generate-{split}.txt").write_text(text)
    """,
    "onmt_train": "",
    "onmt_average_models": "",
    "onmt_translate": 'Path(value("-output")).write_text(Path(value("-src")).read_text())',
}

FAIRSEQ_MODULE = """
class checkpoint_utils:
    def load_checkpoint_to_cpu(path):
        update = int(open(path).read())
        history = [{"num_updates": update}]
        weights = {"weight": Number(update)}
        return {"optimizer_history": history, "model": weights, "last_optimizer_state": None}

    def torch_persistent_save(state, path):
        open(path, "w").write(f"{float(state['model']['weight'])} {sorted(state)}")


class Number(int):
    double = lambda self: self
    float = double
    __add__ = __radd__ = lambda self, other: Number(int(self) + int(other))
    __truediv__ = lambda self, number: Number(int(self) // number)
"""


@pytest.fixture
def programs(tmp_path, monkeypatch):
    """A PATH of stand-ins alone; returns their folder, where each leaves its arguments."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name, body in FAKES.items():
        script = f"""\
            #!{sys.executable}
            import json, sys
            from pathlib import Path
            value = lambda option: sys.argv[sys.argv.index(option) + 1]
            with open({str(folder / name)!r} + ".calls", "a") as file:
                file.write(json.dumps(sys.argv[1:]) + "\\n")
            if "--destdir" in sys.argv:
                binary = Path(value("--destdir"))
                binary.mkdir(exist_ok=True)
        """
        text = textwrap.dedent(script) + textwrap.dedent(body).strip() + "\n"
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    (folder / "fairseq.py").write_text(FAIRSEQ_MODULE)
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.setenv("PYTHONPATH", str(folder))
    monkeypatch.setattr(running.sys, "executable", "/nowhere/python")
    return folder


def options(arguments):
    """Return option → its values."""
    options = {}
    for word in arguments:
        if word.startswith("-") and not word[1:2].isdigit():
            options[word] = values = []
        else:
            values.append(word)
    return options


def test_text_is_written_as_numbers_and_read_back(data, baseline):
    run = baseline()
    export(data, run.text)
    lines = (run.text / "valid.src").read_text(encoding="utf-8").splitlines()
    assert len(lines) == 2  # the empty pair is left out
    assert {x for line in lines for x in line.split()} <= {*run.vocabularies["src"], "<unk>"}
    assert len(run.vocabularies["src"]) == data.subwords.source_size - 4
    assert join(lines, data, "valid") == LINES["valid"]
    assert join(["<unk>", ""], data, "test") == [data.subwords.decode_target([1]), ""]
    with pytest.raises(ShapeshiftError, match="wrote 1 translations of test, expected 2"):
        join(lines[:1], data, "test")


@pytest.mark.parametrize(
    ("name", "program"), [("fairseq", "fairseq-train"), ("opennmt-py", "onmt_train")]
)
def test_a_toolkit_is_run_once_and_its_translations_are_scored_as_ours(
    name, program, data, programs, make_run, tmp_path
):
    measure, run = TOOLKITS[name], make_run("evaluation.tokenize=char")
    rows = measure(run, data)
    [bleu] = score_corpus(LINES["test"], LINES["test"], ["bleu"], tokenizer="char")
    assert [row.dataset for row in rows] == ["valid", "valid mean", "test", "test mean"]
    assert {(row.metric, row.bucket) for row in rows} == {("BLEU", measure.name)}
    assert (rows[2].value, rows[2].signature) == (bleu.value, bleu.signature)
    folder = tmp_path / "cell" / "toolkits" / measure.name
    assert (folder / "train.log").exists()
    if name == "fairseq":  # the mean of updates 40 and 50
        assert (folder / "average.pt").read_text() == "45.0 ['model', 'optimizer_history']"
    assert measure(run, data) == rows
    assert len((programs / f"{program}.calls").read_text().splitlines()) == 1


def commands_of(toolkit, run, folder):
    run.directory.mkdir(exist_ok=True)
    return toolkit.commands(run, {name: str(folder / name) for name in toolkit.programs})


def test_fairseq_is_given_the_same_hyperparameters(baseline, programs):
    commands = commands_of(FAIRSEQ, baseline(), programs)
    train = options(commands["train"][2:])
    assert float(train["--lr"][0]) == pytest.approx(2.0 * (64 * 100) ** -0.5)
    wanted = {"--max-tokens": "700", "--update-freq": "3", "--decoder-layers": "3"}
    assert {option: train[option] for option in wanted} == {x: [y] for x, y in wanted.items()}
    assert {"--share-all-embeddings", "--encoder-normalize-before", "--cpu"} <= train.keys()
    translate = options(commands["translate-test"][2:])
    assert translate["--beam"] == ["6"]
    assert "--unnormalized" in translate
    assert commands["average"][-2] == "2"


def test_opennmt_is_given_the_same_hyperparameters(baseline, programs):
    run = baseline()
    commands = commands_of(OPENNMT, run, programs)
    settings = yaml.safe_load((run.directory / "train.yaml").read_text())
    assert settings["learning_rate"] == pytest.approx(2.0)
    wanted = {"batch_type": "tokens", "batch_size": 700, "accum_count": [3], "dec_layers": 3}
    wanted |= {"share_embeddings": True, "bucket_size": len(LINES["train"])}
    assert {key: settings[key] for key in wanted} == wanted
    models = options(commands["average"][1:])["-models"]
    assert [Path(model).name for model in models] == ["model_step_40.pt", "model_step_50.pt"]
    assert "world_size" not in settings
    other = "{name: inverse_sqrt, peak: 0.003, warmup_updates: 300, factor: null}"
    commands_of(OPENNMT, baseline(f"training.schedule={other}"), programs)
    settings = yaml.safe_load((run.directory / "train.yaml").read_text())
    assert settings["learning_rate"] == pytest.approx(0.003 * (64 * 300) ** 0.5)


@pytest.mark.parametrize(
    ("toolkit", "overrides", "message"),
    [
        (FAIRSEQ, ["position=shape"], "set position=ape"),
        (OPENNMT, ["training.schedule={name: cosine, factor: null}"], "training.schedule.name"),
        (OPENNMT, ["model.norm=post"], "set model.norm=pre"),
        (FAIRSEQ, ["model.tie_output=false"], "set model.tie_output=true"),
    ],
)
def test_what_a_toolkit_cannot_repeat_is_refused(baseline, programs, toolkit, overrides, message):
    with pytest.raises(ShapeshiftError, match=message):
        commands_of(toolkit, baseline(*overrides), programs)


def test_toolkits_that_are_not_there_are_left_out_with_a_line_each(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(running.sys, "executable", str(tmp_path / "python"))
    assert set(TOOLKITS) == OPTIONAL <= MEASURES.keys()
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
    assert (tmp_path / "ran").read_text() == "12"
    run("3", "2")
    assert (tmp_path / "ran").read_text() == "1232"
    for _ in range(2):  # one that fails is run again
        with pytest.raises(ShapeshiftError, match=r"c1\.log: python.* status 1: end"):
            run("3", "44", "5")
    assert (tmp_path / "ran").read_text() == "12324444"


WORK = """
import sys
from shapeshift.lab import work
from shapeshift.lab.toolkits.baseline import run_commands
code = "import os, time; open('pid', 'w').write(str(os.getpid())); time.sleep(60)"
work.attempt = lambda order: run_commands({"a": (sys.executable, "-c", code)}, order.folder)
sys.exit(work.main())
"""


@pytest.mark.long
def test_a_signal_to_the_work_on_a_cell_ends_the_program_as_well(tmp_path):
    order = Order(folder=tmp_path, config={}, steps=(), prepared_root=tmp_path, command="")
    parent = subprocess.Popen(
        (sys.executable, "-c", WORK, order.model_dump_json()), stdin=subprocess.PIPE
    )
    pid = tmp_path / "pid"
    wait_for(lambda: pid.exists() and pid.read_text())
    parent.terminate()
    assert parent.wait(30) == 128 + signal.SIGTERM
    parent.stdin.close()
    wait_for(lambda: not Path("/proc", pid.read_text()).exists())


def wait_for(condition):
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)
