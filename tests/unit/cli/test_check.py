"""`shapeshift check`: a factory, a folder of Hugging Face, a run; the table and the exit status."""

from __future__ import annotations

import json
import os
import pickle
import re
from pathlib import Path
from typing import Any

import pytest
from tests.unit import tiny_models

from shapeshift.cli.models import load_model
from shapeshift.export.huggingface import ShapeshiftConfig, ShapeshiftForSeq2SeqLM

from .running import python, shapeshift

FACTORY = """
from transformers import LlamaConfig, LlamaForCausalLM

class Forgetful(LlamaForCausalLM):
    def forward(self, ids, attention_mask=None, past_key_values=None, use_cache=False):
        return super().forward(ids, past_key_values=past_key_values, use_cache=use_cache)

def make(size=16):
    return Forgetful(LlamaConfig(vocab_size=30, hidden_size=16, num_hidden_layers=1,
        num_attention_heads=2, intermediate_size=16, max_position_embeddings=32))

def sized(dim):
    return make(dim)
"""


@pytest.mark.long
def test_a_model_of_our_class_passes(tmp_path: Path) -> None:
    """In a process of its own, as importing our class registers it."""
    shape = {"dim": 16, "num_heads": 2, "ff_dim": 16, "encoder_layers": 1, "decoder_layers": 1}
    config = ShapeshiftConfig(shape, {"name": "rpe"}, source_size=30, target_size=30)
    ShapeshiftForSeq2SeqLM(config).save_pretrained(tmp_path / "mine")
    command = ("-m", "shapeshift", "check", "mine", "--max-length", "5")
    ended = python(*command, cwd=tmp_path)
    assert ended.returncode == 0, ended.stderr
    assert "pass" in ended.stdout


def test_a_factory_with_a_bug_fails_with_the_smallest_input(tmp_path: Path) -> None:
    (tmp_path / "forgetful_models.py").write_text(FACTORY)
    code, out, _ = shapeshift(tmp_path, "check", "forgetful_models:make", "--max-length", "10")
    assert code == 1
    rows = {line.strip().split("  ")[0]: line for line in out.splitlines()}
    assert "FAIL" in rows["left padding"]
    assert "3 tokens" in rows["left padding"]
    assert "pass" in rows["cached = full"]
    assert re.search(r"^left padding, decoder: \d+ \d+ \d+$", out, flags=re.MULTILINE)


def change(config: Path, changes: dict[str, Any]) -> None:
    config.write_text(json.dumps(json.loads(config.read_text()) | changes))


@pytest.mark.parametrize(
    ("head", "changes", "opened"),
    [
        ("Qwen3VLForConditionalGeneration", {}, "Qwen3VLForConditionalGeneration"),
        ("LlavaForConditionalGeneration", {}, "LlavaForConditionalGeneration"),
        ("Gemma3ForConditionalGeneration", {}, "Gemma3ForConditionalGeneration"),
        # For these, there is a causal class that opens the language model alone.
        ("Qwen3_5ForConditionalGeneration", {}, "Qwen3_5ForConditionalGeneration"),
        (
            "Qwen3_5ForConditionalGeneration", {"architectures": None},
            "Qwen3_5ForConditionalGeneration",
        ),
        ("Qwen3_5ForCausalLM", {}, "Qwen3_5ForCausalLM"),
        ("LlamaForCausalLM", {}, "LlamaForCausalLM"),
        ("BertForMaskedLM", {}, "BertForMaskedLM"),
        ("BertLMHeadModel", {}, "BertLMHeadModel"),
        ("BertLMHeadModel", {"architectures": None, "is_decoder": True}, "BertLMHeadModel"),
        ("BertModel", {}, "BertForMaskedLM"),
        ("BartForConditionalGeneration", {}, "BartForConditionalGeneration"),
        ("BartForCausalLM", {}, "BartForCausalLM"),
        ("BartModel", {}, "BartForConditionalGeneration"),
    ],
)  # fmt: skip
def test_the_class_in_the_configuration_is_opened(
    tmp_path: Path, head: str, changes: dict[str, Any], opened: str
) -> None:
    tiny_models.make(head).save_pretrained(tmp_path)
    change(tmp_path / "config.json", changes)
    assert type(load_model(str(tmp_path))[0]).__name__ == opened


def test_a_folder_of_a_model_of_text_and_images_is_checked(tmp_path: Path) -> None:
    for name in ("mine", "other"):
        model = tiny_models.make("Qwen3VLForConditionalGeneration")
        if name == "other":
            model.model.language_model.rotary_emb.inv_freq[1:] /= 2
            model.config.text_config.rope_parameters["rope_theta"] /= 4
        model.save_pretrained(tmp_path / name)
    code, out, err = shapeshift(tmp_path, "check", "mine", "--declared")
    assert code == 0, out + err
    assert "positions of images" in out
    code, out, err = shapeshift(tmp_path, "check", "mine", "--max-length", "5")
    assert code == 0, out + err
    against = ("check", "mine", "--max-length", "20", "--against")
    assert shapeshift(tmp_path, *against, "mine")[0] == 0
    code, out, _ = shapeshift(tmp_path, *against, "other")
    assert code == 1
    assert re.search("θ.*base", out)


def test_a_model_that_no_class_reads_as_text_is_one_sentence(tmp_path: Path) -> None:
    tiny_models.make("WhisperForConditionalGeneration").save_pretrained(tmp_path / "mine")
    code, _, err = shapeshift(tmp_path, "check", "mine")
    assert code == 1
    assert err.splitlines()[-1].endswith("for the model_type 'whisper' of 'mine'")


@pytest.mark.parametrize("name", ["other.gguf", "exports/other.gguf", "other.onnx"])
def test_a_file_that_is_not_there_is_not_looked_for_on_the_hub(tmp_path: Path, name: str) -> None:
    tiny_models.make("LlamaForCausalLM").save_pretrained(tmp_path / "mine")
    code, _, err = shapeshift(tmp_path, "check", "mine", "--against", name)
    assert code == 1
    assert err.splitlines()[-1] == f"shapeshift: error: {name}: no such file"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("nowhere", "nowhere"),
        ("/no/such/folder", "/no/such/folder: no such folder"),
        ("forgetful_models.py", "forgetful_models.py: expected the folder of a model, got a file"),
        ("no_such_module:make", "no function 'no_such_module:make': there is no module"),
        ("forgetful_models:sized", "missing 1 required positional argument: 'dim'"),
        ("runs", "neither the folder of a run, nor module:factory, nor"),
        ("runs/none", "runs/none: no such folder"),
    ],
)
def test_what_is_no_model_is_one_line(
    tmp_path: Path, name: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "forgetful_models.py").write_text(FACTORY)
    (tmp_path / "runs").mkdir()
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    code, _, err = shapeshift(tmp_path, "check", name)
    assert code == 1
    assert err.startswith("shapeshift: error: ")
    assert err.count("\n") == 1
    assert message in err


class Running:
    """What a pickle of a stranger may hold."""

    def __reduce__(self) -> Any:
        return Path("ran").touch, ()


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("pytorch_model.bin", pickle.dumps(Running())),
        ("model.safetensors", b"\0" * 100),
        ("config.json", None),  # a pipe
        ("config.json", {"num_attention_heads": 0}),
        ("config.json", {"rope_parameters": None, "rope_scaling": {"type": "foo"}}),
        ("config.json", {"auto_map": {"AutoConfig": "a.B"}, "model_type": "b"}),
    ],
    ids=["pickle", "no weights", "pipe", "odd", "no such rope", "own code"],
)
def test_a_folder_of_a_stranger_is_refused_in_one_line(
    tmp_path: Path, name: str, content: bytes | dict[str, Any] | None
) -> None:
    folder = tmp_path / "mine"
    tiny_models.make("LlamaForCausalLM").save_pretrained(folder)
    if name.endswith(".bin"):
        (folder / "model.safetensors").unlink()
    if isinstance(content, dict):
        change(folder / name, content)
    elif content is None:
        (folder / name).unlink()
        os.mkfifo(folder / name)
    else:
        (folder / name).write_bytes(content)
    code, out, err = shapeshift(tmp_path, "check", "mine")
    assert (code, out) == (1, "")
    last = err.splitlines()[-1]
    assert last.startswith("shapeshift: error: ")
    assert "mine" in last
    assert ("rope_scaling.type='foo'" in last) == ("foo" in str(content))
    assert not (tmp_path / "ran").exists()
