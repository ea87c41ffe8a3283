"""`shapeshift check`: a factory, a folder of Hugging Face, a run; the table and the exit status."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import transformers as hf

from .running import shapeshift

SIZES = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
CONFIG = hf.LlamaConfig(
    vocab_size=30, intermediate_size=16, max_position_embeddings=32, num_key_value_heads=2, **SIZES
)
FACTORY = """
from transformers import LlamaConfig, LlamaForCausalLM

class Forgetful(LlamaForCausalLM):
    def forward(self, ids, attention_mask=None, past_key_values=None, use_cache=False):
        return super().forward(ids, past_key_values=past_key_values, use_cache=use_cache)

def make():
    return Forgetful(LlamaConfig(vocab_size=30, hidden_size=16, num_hidden_layers=1,
        num_attention_heads=2, intermediate_size=16, max_position_embeddings=32))
"""


def test_a_model_of_hugging_face_passes(tmp_path: Path) -> None:
    hf.LlamaForCausalLM(CONFIG).save_pretrained(tmp_path / "mine")
    code, out, err = shapeshift(tmp_path, "check", "mine", "--max-length", "10")
    assert code == 0, err
    assert "pass" in out
    assert "FAIL" not in out


def test_a_factory_with_a_bug_fails_with_the_smallest_input(tmp_path: Path) -> None:
    (tmp_path / "forgetful_models.py").write_text(FACTORY)
    code, out, _ = shapeshift(tmp_path, "check", "forgetful_models:make", "--max-length", "10")
    assert code == 1
    rows = {line.strip().split("  ")[0]: line for line in out.splitlines()}
    assert "FAIL" in rows["left padding"]
    assert "3 tokens" in rows["left padding"]
    assert "pass" in rows["cached = full"]
    assert re.search(r"^left padding, decoder: \d+ \d+ \d+$", out, flags=re.MULTILINE)


@pytest.mark.parametrize("name", ["nowhere", "no_such_module:make", "math:make"])
def test_what_is_no_model_is_one_line(tmp_path: Path, name: str) -> None:
    code, _, err = shapeshift(tmp_path, "check", name)
    assert code == 1
    assert err.startswith("shapeshift: error: ")
    assert err.count("\n") == 1
