"""Checkpoints of other libraries compute here what they computed there, see checkpoints/make.py."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from torch import Tensor

from shapeshift._system.errors import ShapeshiftError
from shapeshift.check import check
from shapeshift.interop import restore_relative_positions, shaw_attention
from shapeshift.kernels import library

FOLDER = Path(__file__).parent / "checkpoints"
HEADS = {
    "bert-key": "BertForMaskedLM",
    "bert-key-query": "BertForMaskedLM",
    "bert-decoder": "BertLMHeadModel",
    "electra": "ElectraForMaskedLM",
    "roberta": "RobertaForMaskedLM",
}


def read(name: str) -> tuple[dict[str, Tensor], dict[str, Tensor], dict[str, Any]]:
    """Return the weights, what was recorded, and the settings."""
    with safe_open(FOLDER / f"{name}.safetensors", "pt") as file:
        tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
        settings = json.loads(file.metadata()["settings"])
    prefix = "recorded."
    recorded = {k.removeprefix(prefix): x for k, x in tensors.items() if k.startswith(prefix)}
    weights = {key: x for key, x in tensors.items() if not key.startswith(prefix)}
    return weights, recorded, settings


def open_in_transformers(name: str, folder: Path) -> Any:
    """Return the model as `from_pretrained` opens the checkpoint."""
    transformers = pytest.importorskip("transformers")
    from safetensors.torch import save_file

    weights, _, settings = read(name)
    kind = getattr(transformers, HEADS[name])
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    config = {
        **settings,
        "model_type": kind.config_class.model_type,
        "architectures": [HEADS[name]],
    }
    (folder / "config.json").write_text(json.dumps(config))
    return kind.from_pretrained(folder).eval()


def logits(model: Any, recorded: dict[str, Tensor]) -> Tensor:
    with torch.no_grad():
        out: Tensor = model(recorded["input_ids"], attention_mask=recorded["attention_mask"]).logits
    return out[recorded["attention_mask"].bool()]


@pytest.mark.parametrize("name", HEADS)
def test_relative_positions_of_transformers_4_are_restored(name: str, tmp_path: Path) -> None:
    _, recorded, _ = read(name)
    expected = recorded["logits"][recorded["attention_mask"].bool()]
    model = open_in_transformers(name, tmp_path)
    assert (logits(model, recorded) - expected).abs().max() > 0.01  # transformers 5 alone
    names = restore_relative_positions(model, tmp_path)
    torch.testing.assert_close(logits(model, recorded), expected, rtol=1e-5, atol=1e-5)
    assert set(names) <= read(name)[0].keys()
    model.save_pretrained(tmp_path / "again")
    again = type(model).from_pretrained(tmp_path / "again").eval()
    restore_relative_positions(again, tmp_path / "again")
    torch.testing.assert_close(logits(again, recorded), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", ["bert-key", "bert-key-query"])
def test_restored_positions_learn_as_without_kernels(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids, gradients = read(name)[1]["input_ids"], []
    for found in (library.library, lambda _: None):
        monkeypatch.setattr(library, "library", found)
        model = open_in_transformers(name, tmp_path)
        restore_relative_positions(model, tmp_path)
        model(ids).logits.square().mean().backward()
        gradients.append({key: x.grad for key, x in model.named_parameters()})
    own, expected = gradients
    tables = [grad for key, grad in expected.items() if "distance_embedding" in key]
    assert tables
    assert all(grad is not None for grad in tables)
    for key, grad in expected.items():
        torch.testing.assert_close(own[key], grad, rtol=1e-4, atol=1e-6, msg=key)


@pytest.mark.parametrize("name", ["bert-decoder", "roberta"])
def test_restored_models_conform(name: str, tmp_path: Path) -> None:
    model = open_in_transformers(name, tmp_path)
    restore_relative_positions(model, tmp_path)
    findings = {x.property: x for x in check(model, max_length=10)}
    assert not [finding for finding in findings.values() if finding.outcome == "FAIL"]
    assert findings["shift"].outcome == "pass"


@pytest.mark.parametrize("is_static", [False, True])
def test_a_cache_gives_the_same(tmp_path: Path, is_static: bool) -> None:
    transformers = pytest.importorskip("transformers")
    model = open_in_transformers("bert-decoder", tmp_path)
    weights, recorded, _ = read("bert-decoder")
    restore_relative_positions(model, weights)
    ids, cache, out = recorded["input_ids"][:1], None, []
    if is_static:
        cache = transformers.StaticCache(model.config, max_cache_len=ids.shape[1] + 5)
    with torch.no_grad():
        for piece in ids.split((3, 1, 4, 1), dim=1):
            step = model(piece, past_key_values=cache, use_cache=True)
            cache = step.past_key_values
            out.append(step.logits)
    torch.testing.assert_close(torch.cat(out, 1), recorded["logits"][:1], rtol=1e-5, atol=1e-5)


def test_another_attention_is_refused(tmp_path: Path) -> None:
    model = open_in_transformers("bert-key", tmp_path)
    _, recorded, _ = read("bert-key")
    restore_relative_positions(model, tmp_path)
    model.set_attn_implementation("eager")
    with pytest.raises(ShapeshiftError, match="is 'eager', which does not compute its positions"):
        logits(model, recorded)
    model.set_attn_implementation("shapeshift_relative_key")
    fresh = type(model)(model.config)
    with pytest.raises(ShapeshiftError, match="has no tables; call restore_relative_positions"):
        fresh(recorded["input_ids"])


def test_what_has_no_tables_is_refused(tmp_path: Path) -> None:
    model = open_in_transformers("bert-key", tmp_path)
    weights = {k: x for k, x in read("bert-key")[0].items() if "distance" not in k}
    with pytest.raises(ShapeshiftError, match="0 tables called distance_embedding"):
        restore_relative_positions(model, weights)
    model.config.position_embedding_type = "absolute"
    with pytest.raises(ShapeshiftError, match="give kind='relative_key'"):
        restore_relative_positions(model, tmp_path)
    (tmp_path / "empty").mkdir()
    with pytest.raises(ShapeshiftError, match=r"no model\.safetensors and no pytorch_model\.bin"):
        restore_relative_positions(model, tmp_path / "empty", "relative_key")
    restore_relative_positions(model, tmp_path, "relative_key")


@pytest.mark.parametrize("name", ["opennmt", "opennmt-no-bias", "fairseq2", "fairseq2-keys"])
@pytest.mark.parametrize("prefix", ["", "encoder.0.self_attn"])
def test_shaw_attention_of_other_libraries(name: str, prefix: str) -> None:
    weights, recorded, settings = read(name)
    weights = {f"{prefix}.{key}".lstrip("."): x for key, x in weights.items()}
    attention = shaw_attention(weights, prefix=prefix, **settings).eval()
    x, padding = recorded["x"], recorded["padding"]
    with torch.no_grad():
        out, _ = attention(x, x, x, key_padding_mask=padding, need_weights=False)
    torch.testing.assert_close(out[~padding], recorded["out"][~padding], rtol=1e-5, atol=1e-5)


def test_other_weights_are_refused() -> None:
    weights, _, settings = read("fairseq2-keys")
    with pytest.raises(ShapeshiftError, match="neither relative_positions_embeddings"):
        shaw_attention(weights, prefix="decoder", **settings)
    with pytest.raises(ShapeshiftError, match="are 2 heads, got num_heads=4"):
        shaw_attention(weights, 4, max_right=2)
    with pytest.raises(ShapeshiftError, match="give the clipping distance"):
        shaw_attention(weights, 2, max_right=8)
    with pytest.raises(ShapeshiftError, match="give the clipping distance"):
        shaw_attention(weights, 2, max_right=-1)
    missing = next(name for name in weights if name.endswith("v_proj.weight"))
    with pytest.raises(ShapeshiftError, match=f"^{missing} is not among the weights"):
        shaw_attention({x: y for x, y in weights.items() if x != missing}, **settings)
