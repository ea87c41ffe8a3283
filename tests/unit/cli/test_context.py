"""`shapeshift context`: the table, the files, the exit status, refusals."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path

import pytest
import transformers as hf
from tests.unit import tiny_models
from tokenizers import Tokenizer, models, pre_tokenizers

from .running import shapeshift

MAKE = """
from tests.unit.tiny_models import make

def llama():
    return make("LlamaForCausalLM", positions=16)

def table():
    return make("GPT2LMHeadModel", positions=16)
"""
IDS = " ".join(str(4 + n * n % 50) for n in range(130))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "long_models.py").write_text(MAKE)
    (tmp_path / "ids.txt").write_text(IDS)
    return tmp_path


def cells(out: str) -> dict[str, list[str]]:
    """Return the rows of the printed table."""
    table = [re.split(r"\s{2,}", line.strip()) for line in out.splitlines()]
    return {row[0]: row[1:] for row in table if len(row) > 2}


def test_a_table_and_files(folder: Path) -> None:
    for name, kind in (("mine", "rope_type"), ("old", "type")):  # as of transformers 4
        (folder / f"{name}.json").write_text(json.dumps({kind: "linear", "factor": 4}))
    methods = "linear,dynamic,mine.json,old.json,drope"
    code, out, err = shapeshift(
        folder, "context", "long_models:llama", "--method", methods, "--text", "ids.txt",
        "--passkeys", "1", "--output", "found",
    )  # fmt: skip
    assert code == 0, err
    rows = cells(out)
    assert rows["method"] == [
        *("0–8", "8–16", "16–24", "24–32", "32–48", "48–64"),
        *("passkey 16", "passkey 32", "passkey 64", "cache"),
    ]
    assert list(rows) == ["method", "unchanged", "linear", "dynamic", "mine", "old", "drope"]
    assert rows["old"][:9] == rows["mine"][:9] == rows["linear"][:9]
    assert rows["linear"] != rows["unchanged"]
    assert rows["linear"][-1].startswith("same (")
    assert "trained with 16 tokens, read up to 64" in out
    assert "random token ids, as the model has no folder" in out
    assert "drope: without the further training" in out
    names = {"context.csv", "context.json", "context.png", "context.svg", "context.pdf"}
    assert {path.name for path in (folder / "found").iterdir()} == names
    document = json.loads((folder / "found" / "context.json").read_text())
    methods = {row["method"]: row for row in document["rows"]}
    assert methods["linear"]["parameters"] == {
        "rope_type": "linear", "rope_theta": 10000.0, "factor": 4.0
    }  # fmt: skip
    with (folder / "found" / "context.csv").open(newline="") as stream:
        lines = [*csv.DictReader(stream)]
    values = [line for line in lines if line["method"] == "drope"]
    assert [float(each["value"]) for each in values if each["metric"] == "perplexity"] == [
        value for _, _, value in methods["drope"]["perplexity"]
    ]
    assert [each["depth"] for each in values if each["metric"] == "passkey"][:5] == [
        *("0.0", "0.25", "0.5", "0.75", "1.0")
    ]
    assert rows["drope"][5] == f"{methods['drope']['perplexity'][5][2]:,.2f}"


def test_a_folder_with_a_tokenizer(folder: Path) -> None:
    """Its tokens are bytes."""
    signs = sorted(pre_tokenizers.ByteLevel.alphabet())
    bytes_ = Tokenizer(models.WordLevel({sign: 4 + n for n, sign in enumerate(signs)}, "?"))
    bytes_.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.ByteLevel(add_prefix_space=False), pre_tokenizers.Split("", "isolated")]
    )
    hf.PreTrainedTokenizerFast(tokenizer_object=bytes_).save_pretrained(folder / "model")
    model = tiny_models.make("LlamaForCausalLM", positions=400, vocab_size=300)
    model.save_pretrained(folder / "model")
    (folder / "text.txt").write_text("Ein Wort, und noch ein Wort.\n" * 30)
    options = ("--method", "ntk", "--length", "600", "--text", "text.txt", "--passkeys", "1")
    code, out, err = shapeshift(folder, "context", "model", *options)
    assert code == 0, err
    assert "passkey 600" in out
    assert "five digits in sentences" in out
    (folder / "text.txt").write_text("zu kurz")
    code, _, err = shapeshift(folder, "context", "model", *options)
    assert code == 1
    assert "the text has 7 tokens, fewer than the length of 600" in err


@pytest.mark.parametrize("head", ["GPT2LMHeadModel", "Qwen3ForCausalLM", "Gemma3ForCausalLM"])
def test_a_folder_without_a_tokenizer_reads_token_ids(folder: Path, head: str) -> None:
    """For such a folder, transformers builds a tokenizer that has only special tokens."""
    tiny_models.make(head, positions=16).save_pretrained(folder / "model")
    command = ("context", "model", "--length", "32", "--passkeys", "1", "--method", "")
    code, out, err = shapeshift(folder, *command)
    assert code == 0, err
    assert "random token ids, as the model's folder has no tokenizer" in out
    code, out, err = shapeshift(folder, *command, "--text", "ids.txt")
    assert code == 0, err
    assert float(cells(out)["unchanged"][0]) > 1


@pytest.mark.parametrize("head", ["BertForMaskedLM", "BertLMHeadModel", "ModernBertForMaskedLM"])
def test_a_model_that_sees_later_tokens_is_refused(folder: Path, head: str) -> None:
    tiny_models.make(head, positions=16).save_pretrained(folder / "model")
    code, out, err = shapeshift(folder, "context", "model", "--length", "32")
    assert (code, out) == (1, "")
    message = f"shapeshift: error: {head} is not causal: "
    assert err.splitlines()[-1].startswith(message)


def test_a_method_that_cannot_be_applied_is_a_row_and_the_status(folder: Path) -> None:
    command = ("context", "long_models:table", "--text", "ids.txt", "--passkeys", "0")
    code, out, _ = shapeshift(folder, *command, "--method", "yarn")
    assert code == 1
    assert "yarn: not applied:" in out
    assert "has no rotary positions" in out
    rows = cells(out)
    assert set(rows["yarn"]) == {"–"}
    assert float(rows["unchanged"][0]) > 1
    assert len(rows["unchanged"]) == 3
    assert shapeshift(folder, *command, "--method", "")[0] == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--method", "yarm"), "unknown method 'yarm'; did you mean 'yarn'? (known: linear, ntk"),
        (("--text", "words.txt"), "must be token ids below 60, separated by spaces, got 'two'"),
        (("--text", "none.txt"), "no such file"),
        (("--method", "words.json"), "words.json: expected rope_parameters, such as"),
        (("--device", "gpu"), "use auto, cpu, cuda"),
    ],
)
def test_errors_in_one_line(folder: Path, arguments: tuple[str, ...], message: str) -> None:
    (folder / "words.txt").write_text("5 two")
    (folder / "words.json").write_text("[1]")
    code, out, err = shapeshift(folder, "context", "long_models:llama", *arguments)
    assert code == 1
    assert message in err
    assert err.count("\n") == 1
    assert not out
