"""The baseline in other toolkits, which programs of a few lines stand in for."""

import multiprocessing
import signal
import sys
import textwrap
import time
from pathlib import Path

import pytest
import yaml
from sacrebleu.tokenizers import tokenizer_ja_mecab

from shapeshift.config import parse_config
from shapeshift.data.prepare import prepare
from shapeshift.errors import ShapeshiftError
from shapeshift.evaluation.metrics import score_corpus
from shapeshift.lab.measures import MEASURES, OPTIONAL, find_measure, usable
from shapeshift.lab.run import Run
from shapeshift.lab.toolkits import commands as running
from shapeshift.lab.toolkits.baseline import Baseline
from shapeshift.lab.toolkits.commands import Command, run_commands
from shapeshift.lab.toolkits.export import export, join
from shapeshift.lab.toolkits.fairseq import FAIRSEQ
from shapeshift.lab.toolkits.opennmt import OPENNMT

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
    text = export(data, tmp_path / "text")
    return lambda *overrides: Baseline(make_run(*overrides).config, text, tmp_path / "it", False)


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
        copied = json.loads((Path(sys.argv[1]) / "copied.json").read_text())
        print("S-0\\tnoise")
        for number, line in reversed(list(enumerate(copied[value("--gen-subset")]))):
            print(f"H-{number}\\t-0.5\\t{line}")
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
    __add__ = lambda self, other: Number(int(self) + int(other))
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


def test_text_is_written_as_numbers_and_read_back(data, tmp_path):
    text = export(data, tmp_path)
    lines = text.file("valid", "src").read_text(encoding="utf-8").splitlines()
    assert len(lines) == 2  # the empty pair is left out
    known = set(text.vocabularies["src"]) | {"<unk>"}
    assert {word for line in lines for word in line.split()} <= known
    assert len(text.vocabularies["src"]) == data.subwords.source_size - 4
    assert join(lines, data, "valid") == LINES["valid"]
    assert join(["<unk>", ""], data, "test") == [data.subwords.decode_target([1]), ""]
    assert text.joint


@pytest.mark.parametrize(
    ("name", "program"), [("fairseq", "fairseq-train"), ("opennmt-py", "onmt_train")]
)
def test_a_toolkit_is_run_once_and_its_translations_are_scored_as_ours(
    name, program, data, programs, make_run, tmp_path
):
    measure, run = TOOLKITS[name], make_run()
    rows = measure(run, data)
    [bleu] = score_corpus(LINES["test"], LINES["test"], ["bleu"])
    assert [row.dataset for row in rows] == ["valid", "valid mean", "test", "test mean"]
    assert {(row.metric, row.bucket) for row in rows} == {("BLEU", measure.name)}
    assert (rows[2].value, rows[2].signature) == (bleu.value, bleu.signature)
    folder = tmp_path / "cell" / "toolkits" / measure.name
    assert (folder / "commands.sh").read_text().count("\n") >= 3
    assert (folder / "train.log").exists()
    if name == "fairseq":  # the mean of updates 40 and 50
        assert (folder / "average.pt").read_text() == "45.0 ['model', 'optimizer_history']"
    assert measure(run, data) == rows
    assert len((programs / f"{program}.calls").read_text().splitlines()) == 1


def arguments_of(toolkit, run, folder=Path("/bin")):
    paths = {name: folder / name for name in toolkit.programs}
    run.directory.mkdir(exist_ok=True)
    return {command.name: command.arguments for command in toolkit.commands(run, paths)}


PEAK = 2.0 * (64 * 100) ** -0.5


def test_fairseq_is_told_the_same_hyperparameters(baseline, programs):
    commands = arguments_of(FAIRSEQ, baseline(), programs)
    train = options(commands["train"][2:])
    assert float(train["--lr"][0]) == pytest.approx(PEAK)
    wanted = {"--max-tokens": "700", "--update-freq": "3", "--decoder-layers": "3"}
    assert {option: train[option] for option in wanted} == {x: [y] for x, y in wanted.items()}
    assert {"--share-all-embeddings", "--encoder-normalize-before", "--cpu"} <= train.keys()
    translate = options(commands["translate-test"][2:])
    assert translate["--beam"] == ["6"]
    assert "--unnormalized" in translate
    assert commands["average"][-2] == "2"


def test_opennmt_is_told_the_same_hyperparameters(baseline):
    run = baseline()
    commands = arguments_of(OPENNMT, run)
    settings = yaml.safe_load((run.directory / "train.yaml").read_text())
    assert settings["learning_rate"] == pytest.approx(2.0)
    wanted = {"batch_type": "tokens", "batch_size": 700, "accum_count": [3], "dec_layers": 3}
    wanted |= {"share_embeddings": True, "bucket_size": len(LINES["train"])}
    assert {key: settings[key] for key in wanted} == wanted
    models = options(commands["average"][1:])["-models"]
    assert [Path(model).name for model in models] == ["model_step_40.pt", "model_step_50.pt"]
    assert "world_size" not in settings
    other = baseline(
        "training.schedule={name: inverse_sqrt, peak: 0.003, warmup_updates: 300, factor: null}"
    )
    assert (other.peak, other.noam_factor) == (0.003, pytest.approx(0.003 * (64 * 300) ** 0.5))


@pytest.mark.parametrize(
    ("toolkit", "overrides", "message"),
    [
        (FAIRSEQ, ["position=shape"], "set position=ape"),
        (OPENNMT, ["training.schedule={name: cosine, factor: null}"], "training.schedule.name"),
        (OPENNMT, ["training.optimizer.name=radam"], "set training.optimizer.name=adam"),
        (OPENNMT, ["model.norm=post"], "set model.norm=pre"),
        (FAIRSEQ, ["model.tie_output=false"], "set model.tie_output=true"),
    ],
)
def test_what_a_toolkit_cannot_repeat_is_refused(baseline, programs, toolkit, overrides, message):
    with pytest.raises(ShapeshiftError, match=message):
        arguments_of(toolkit, baseline(*overrides), programs)


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


def command(name, code):
    return Command(name, (sys.executable, "-c", code))


def test_commands_that_are_done_are_not_run_again_unless_something_before_them_changed(tmp_path):
    append = "import sys; open('ran', 'a').write({!r})"
    first, second = command("a", append.format("1")), command("b", append.format("2"))
    for _ in range(2):
        run_commands([first, second], tmp_path)
    assert (tmp_path / "ran").read_text() == "12"
    run_commands([command("a", append.format("3")), second], tmp_path)
    assert (tmp_path / "ran").read_text() == "1232"

    variable = "TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD"
    code = f"import os, sys; print(os.environ['{variable}']); print('note', file=sys.stderr)"
    output = tmp_path / "output"
    run_commands([Command("a", (sys.executable, "-c", code), output)], tmp_path)
    assert output.read_text() == "1\n"
    assert (tmp_path / "a.log").read_text() == "note\n"
    assert f"{variable}=1 " in (tmp_path / "commands.sh").read_text()


def test_a_command_that_fails_shows_its_last_line_and_is_run_again(tmp_path):
    code = "import sys; print('before'); sys.exit('out of luck')"
    for _ in range(2):
        with pytest.raises(ShapeshiftError, match=r"a\.log: python.* status 1: out of luck"):
            run_commands([command("a", code), command("b", "open('b', 'w')")], tmp_path)
    assert not (tmp_path / "b").exists()
    with pytest.raises(ShapeshiftError, match="/nowhere/train cannot be started"):
        run_commands([Command("a", ("/nowhere/train",))], tmp_path)


def test_a_signal_ends_the_program_as_well(tmp_path):
    code = "import os, time; open('pid', 'w').write(str(os.getpid())); time.sleep(60)"
    commands = [command("a", code)]
    parent = multiprocessing.get_context("fork").Process(
        target=run_commands, args=(commands, tmp_path)
    )
    parent.start()
    pid = tmp_path / "pid"
    wait_for(lambda: pid.exists() and pid.read_text())
    parent.terminate()
    parent.join(30)
    assert parent.exitcode == 128 + signal.SIGTERM
    wait_for(lambda: not Path("/proc", pid.read_text()).exists())


def wait_for(condition):
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_another_toolkit_is_scored_with_the_run_s_tokenizer(
    data, programs, make_run, tmp_path, monkeypatch
):
    monkeypatch.setattr(tokenizer_ja_mecab, "MeCab", None)
    with pytest.raises(ShapeshiftError, match="install the extra ja"):
        OPENNMT(make_run("evaluation.tokenize=ja-mecab"), data)
    assert not (tmp_path / "cell" / "toolkits").exists()  # nothing was trained
    rows = OPENNMT(make_run("evaluation.tokenize=char"), data)
    assert all("|tok:char|" in row.signature for row in rows)
