"""`shapeshift export`, and the code of docs/guides/exporting.md."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from shapeshift._system.errors import ShapeshiftError
from shapeshift._system.hashes import hash_file
from shapeshift.cli import app
from shapeshift.data.prepared import REPORT, REPORT_OF_RUN
from shapeshift.data.subwords import EOS
from shapeshift.decoding.config import DecodingConfig
from shapeshift.decoding.running import Runner
from shapeshift.evaluation.scores import evaluate
from shapeshift.export import ctranslate2, parity
from shapeshift.export.running import CTranslate2Runner
from shapeshift.run import export
from shapeshift.run.folder import Run, load_run
from shapeshift.run.machine import Machine
from shapeshift.serve.service import ServedRun
from shapeshift.training.checkpoints import Checkpoints
from shapeshift.training.manifest import MODEL, Progress
from shapeshift.training.weights import average

from ..serve.untrained import write_run

PYTHON = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


def guide(n):
    """Return a block of Python of the guide: for transformers, ONNX, CTranslate2."""
    page = Path(__file__).parents[3] / "docs" / "guides" / "exporting.md"
    return PYTHON.findall(page.read_text())[n]


@pytest.fixture
def run(data, tmp_path):
    """The folder of a run, as training leaves it, with random weights."""
    folder = write_run(tmp_path / "runs" / "mine", "rpe", data.directory / "subwords", decoding={})
    shutil.copy(data.directory / REPORT, folder / REPORT_OF_RUN)
    change_weights(folder, lambda weights: weights[EOS].mul_(6))  # else it hardly ever ends
    return folder


def change_weights(run, change):
    """Change the final model's output weights, and save one more checkpoint."""
    model = Run(run).model()
    with torch.no_grad():
        change(model.output.weight)
    checkpoints = Checkpoints(run / "checkpoints", keep=2)
    progress = Progress(len(checkpoints.updates()) + 1)
    path = checkpoints.save(model, torch.optim.Adam(model.parameters()), progress)
    (run / "average.safetensors").unlink()
    average([path / MODEL], run / "average.safetensors")


def invoke(*arguments, command="export"):
    return CliRunner().invoke(app, [command, *map(str, arguments)])


def test_an_option_without_effect_is_refused(run):
    for option, code in ((("--max-length", 9), 1), (("--quantization", "int8"), 2)):
        result = invoke(run, "--to", "onnx", *option)
        assert result.exit_code == code
        message = result.output or str(result.exception)
        assert "has no effect on" in message
        assert option[0] in message


def test_the_precision_of_the_comparison_is_said(run, monkeypatch):
    pytest.importorskip("ctranslate2", reason="the extra ctranslate2 is not installed")
    for precision in ("fp32", "bf16"):
        monkeypatch.setattr(
            Machine,
            "here",
            lambda training, said=precision: Machine(
                device="cpu", precision=said, threads=1, hardware="a CPU"
            ),
        )
        result = invoke(run, "--output", run / precision)
        assert result.exit_code == 0, result.output
        assert ("training.precision=fp32" in result.output) == (precision == "bf16")


def test_a_run_is_exported_with_its_report(run):
    pytest.importorskip("ctranslate2", reason="the extra ctranslate2 is not installed")
    result = invoke(run, "--quantization", "int8", "--checkpoint", "last")
    assert result.exit_code == 0, result.output
    folder = run / "ctranslate2-int8"
    report = json.loads((folder / "export.json").read_text())
    assert report["quantization"] == "int8"
    assert 0 < report["parity"]["log_prob"] < 1e-4
    assert f"{report['parity']['log_prob']:.1e}" in result.output
    assert (folder / "subwords" / "joint.model").is_file()
    tables = [line for line in result.output.splitlines() if str(run) not in line]
    assert max(map(len, tables)) <= 80  # where numbers would be broken in a terminal
    again = invoke(run, "--quantization", "int8")
    assert "is not an empty folder" in str(again.exception)
    settings = ["training.device=cpu", "training.precision=bf16"]
    for open_it in (
        lambda: load_run(run, settings).translator(engine="ctranslate2-int8"),
        lambda: ServedRun(folder, settings),
    ):
        with pytest.raises(ShapeshiftError, match=r"training\.precision has no effect on ctransl"):
            open_it()
    load_run(run, settings[:1]).translator(engine="ctranslate2-int8")


@pytest.mark.parametrize(
    ("options", "is_stale"),
    [([], True), (["--checkpoint", "last"], True), (["--checkpoint", "1"], False)],
)
def test_an_export_of_older_weights_is_refused(run, options, is_stale):
    pytest.importorskip("ctranslate2", reason="the extra ctranslate2 is not installed")
    assert invoke(run, "--quantization", "int8", *options).exit_code == 0
    folder = run / "ctranslate2-int8"

    def opened():
        ServedRun(folder)
        return load_run(run).translator(engine=folder.name)

    opened()
    change_weights(run, lambda weights: weights.add_(1))
    if not is_stale:
        opened()
        shutil.rmtree(run / "checkpoints" / "update-00000001")
        opened()
        return
    with pytest.raises(ShapeshiftError, match="from other weights than the run has now") as error:
        opened()
    shutil.rmtree(folder)
    command = str(error.value).partition("shapeshift export ")[2]
    assert invoke(*shlex.split(command)).exit_code == 0
    assert json.loads((folder / "export.json").read_text())["quantization"] == "int8"
    opened()


def test_a_model_of_onnx_refuses_a_gpu(run, monkeypatch):
    model = Runner(object(), DecodingConfig())
    monkeypatch.setattr("shapeshift.run.folder.open_export", lambda *given: model)
    monkeypatch.setattr(Run, "_check_weights", lambda *given: None)
    load_run(run, ["training.device=cpu"]).translator(engine="onnx")
    monkeypatch.setattr("shapeshift.run.folder.choose_device", lambda name: torch.device("cuda"))
    load_run(run).translator(engine="onnx")
    with pytest.raises(ShapeshiftError, match=r"training\.device .* onnx, which runs on the CPU;"):
        load_run(run, ["training.device=cuda"]).translator(engine="onnx")


def test_a_run_is_exported_for_transformers(run):
    """The code of the model card translates, as `shapeshift translate` does."""
    pytest.importorskip("transformers", reason="the extra hf is not installed")
    result = invoke(run, "--to", "huggingface")
    assert result.exit_code == 0, result.output
    assert result.stderr == ""  # no bars of transformers
    folder = run / "huggingface"
    report = json.loads((folder / "export.json").read_text())
    assert report["parity"]["log_prob"] < 1e-6 < report["parity"]["effects"]["encoder"]
    assert "opened by ShapeshiftForSeq2SeqLM" in result.output
    card = (folder / "README.md").read_text()
    assert "shaw at self" in card
    assert "import shapeshift.export.huggingface" in card
    (code,) = PYTHON.findall(card)
    names = {}
    code = code.replace("path of this folder", str(folder)).replace("A sentence.", "A man sleeps.")
    code = code.replace("(**batch)", "(**batch, num_beams=1, max_new_tokens=20)")
    exec(code.replace("print(", "translations = ("), names)
    limits = ["decoding.max_length_a=0", "decoding.max_length_b=20"]
    expected = load_run(run, ["decoding.beam=1", *limits]).translate(["A man sleeps."])
    assert names["translations"] == expected
    exec(guide(0), names)
    [translation] = names["translate"](folder, ["A man sleeps."])
    assert translation
    refused = invoke(run, "--to", "huggingface", "--quantization", "int8")
    assert (refused.exit_code, "no effect" in refused.stderr) == (2, True)


def test_a_model_card_has_the_scores_of_its_weights_and_no_others(run, tmp_path):
    pytest.importorskip("transformers", reason="the extra hf is not installed")
    (run / "results").mkdir()
    document = evaluate(["a b c d"], ["a b c d"], metrics=["bleu"])
    for which, value in (("average", 11.0), ("last", 22.0), ("best", 33.0)):
        other = {} if which == "best" else {"weights_sha256": hash_file(Run(run).weights(which))}
        score = document.scores[0].model_copy(update={"value": value})
        scores = document.model_copy(update={**other, "scores": (score,)})
        (run / "results" / f"test.{which}.json").write_text(scores.document())
    cards = {}
    for which in ("average", "last"):
        target = tmp_path / which
        invoke(run, "--to", "huggingface", "--checkpoint", which, "--output", target)
        cards[which] = (target / "README.md").read_text()
        report = json.loads((target / "export.json").read_text())
        assert report["weights_sha256"] == hash_file(Run(run).weights(which))
    assert re.findall("[123]{2}\\.00", cards["average"]) == ["11.00"]
    assert re.findall("[123]{2}\\.00", cards["last"]) == ["22.00"]
    assert "| weights | average of a training of 1 updates |" in cards["average"]
    assert "| weights | checkpoint after 1 updates |" in cards["last"]
    (run / "results" / "test.last.json").unlink()
    invoke(run, "--to", "huggingface", "--checkpoint", "last")
    assert "These weights are not scored yet." in (run / "huggingface" / "README.md").read_text()


@pytest.mark.slow
def test_the_guide_translates_with_onnx(run, tmp_path):
    pytest.importorskip("onnxruntime", reason="the extra onnx is not installed")
    assert invoke(run, "--to", "onnx").exit_code == 0
    exec(guide(1), names := {})
    limits = ["decoding.beam=1", "decoding.max_length_a=0", "decoding.max_length_b=21"]
    expected = load_run(run, limits).translate(["A man sleeps."])
    assert names["translate"](run / "onnx", "A man sleeps.", 20) == expected[0]
    text = tmp_path / "text"
    text.write_text("A man sleeps.\n")
    settings = (x for limit in limits for x in ("--set", limit))
    result = translate(run, text, *settings, "--engine", "onnx")
    assert result.stdout.splitlines() == expected, result.stderr


def check(run):
    """Return the exit status, and engine → the line on its export."""
    result = invoke(run, "--max-length", "5", command="check")
    assert "cached = full" in result.output, result.output
    lines = [line.split() for line in result.output.splitlines() if "export parity" in line]
    return result.exit_code, {line[2]: " ".join(line[3:]) for line in lines}


@pytest.mark.long
def test_a_run_is_checked_with_its_exports(run, monkeypatch):
    """pass, FAIL, not applicable."""
    pytest.importorskip("ctranslate2", reason="the extra ctranslate2 is not installed")
    pytest.importorskip("transformers", reason="the extra hf is not installed")
    monkeypatch.setattr(export, "ENGINES", ("ctranslate2", "huggingface"))
    status, lines = check(run)
    assert (status, set(lines)) == (0, {"ctranslate2", "huggingface"})
    assert all(line.startswith("pass") and "log p" in line for line in lines.values())
    monkeypatch.setattr(parity, "TOLERANCE", -1.0)
    monkeypatch.setattr(ctranslate2, "unsupported", lambda *_: "no such kind")
    status, lines = check(run)
    assert status == 1
    assert lines["huggingface"].startswith("FAIL")
    assert lines["ctranslate2"].startswith("not applicable")
    assert not [path for path in run.iterdir() if path.name in export.ENGINES]


def test_the_list_says_what_can_be_exported():
    result = invoke("--list")
    assert result.exit_code == 0
    assert "exact after rewriting" in result.output
    refusal = "refused: CTranslate2 does not compute tupe; use learned at embedding"
    assert refusal in " ".join(result.output.split())


def translate(run, *arguments):
    return invoke(run, *arguments, command="translate")


def test_translate_and_the_guide_run_the_exported_model(run, tmp_path, monkeypatch):
    pytest.importorskip("ctranslate2", reason="the extra ctranslate2 is not installed")
    text = tmp_path / "text"
    text.write_text("A man sleeps.\n\nThe old dog sees the cat.\nno words at all\n")
    arguments = (text, "--set", "decoding.beam=1")
    missing = translate(run, *arguments, "--engine", "ctranslate2")
    assert "to make one: shapeshift export" in str(missing.exception)
    assert invoke(run).exit_code == 0
    expected = translate(run, *arguments)
    ran = []
    search = CTranslate2Runner.search
    monkeypatch.setattr(CTranslate2Runner, "search", lambda *given: ran.append(1) or search(*given))
    result = translate(run, *arguments, "--engine", "ctranslate2")
    assert result.exit_code == expected.exit_code == 0, result.output
    assert ran
    assert result.stdout == expected.stdout
    assert len(result.stdout.splitlines()) == 4
    refused = translate(run, *arguments, "--engine", "ctranslate2", "--checkpoint", "last")
    assert refused.exit_code == 2
    assert "has no effect on ctranslate2" in refused.stderr
    monkeypatch.chdir(run.parents[1])
    exec(guide(2), names := {})
    settings = ["decoding.beam=4", "decoding.length_penalty.alpha=0"]
    assert names["translations"] == load_run(run, settings).translate(names["lines"])
