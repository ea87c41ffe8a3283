"""The code that README and the guides to Hugging Face and torch.nn show runs as it stands there."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.unit.tiny_models import ALL, build
from torch import nn

from shapeshift import SHAPE, unshift
from shapeshift.positions import Representation

ROOT = Path(__file__).parents[3]
HUGGING_FACE, TORCH_NN = "docs/guides/hugging-face.md", "docs/guides/torch-nn.md"


def snippet(page: str, mark: str) -> str:
    """Return the only Python block of a page that contains `mark`."""
    text = (ROOT / page).read_text(encoding="utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL)
    (found,) = [block for block in blocks if mark in block]
    return found


@pytest.mark.parametrize("page", ["README.md", HUGGING_FACE])
def test_shape_in_bart(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # A folder of the name that the snippet loads stands in for the download.
    ALL["bart"].build(positions=200).save_pretrained(tmp_path / "facebook/bart-base")
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    exec(snippet(page, "AutoModelForSeq2SeqLM"), names)
    model = names["model"]
    inputs = ALL["bart"].inputs(torch.randint(5, 50, (4, 6)))
    in_training = [model.train()(**inputs).logits for _ in range(2)]
    assert not torch.allclose(*in_training, atol=1e-4)
    shifted = model.eval()(**inputs).logits
    unshift(model)
    assert torch.equal(model(**inputs).logits, shifted)


def test_other_positions_in_a_model_and_in_the_saved_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    build("Llama").save_pretrained(tmp_path / "HuggingFaceTB/SmolLM2-135M")
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    exec(snippet(HUGGING_FACE, "use_position("), names)
    [position] = names["model"].get_submodule("model.shapeshift_positions").children()
    assert type(position) is Representation
    names["model"].save_pretrained("my-model")
    exec(snippet(HUGGING_FACE, "import shapeshift\n"), names)
    [position] = names["model"].get_submodule("model.shapeshift_positions").children()
    assert type(position) is Representation


def test_rotary_positions_of_a_released_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    models = json.loads((ROOT / "tests/numerics/released_rope.json").read_text())["models"]
    folder = tmp_path / "Llama-3.1-8B"
    folder.mkdir()
    config = models["meta-llama/Llama-3.1-8B"]["config"]
    (folder / "config.json").write_text(json.dumps(config))
    monkeypatch.chdir(tmp_path)
    q = torch.ones(1, 2, 3, 128)
    names: dict[str, Any] = {"q": q, "k": q, "pos": torch.arange(3)[None]}
    exec(snippet(HUGGING_FACE, "from_config("), names)
    assert names["theta"].shape == (64,)
    assert not torch.equal(names["q"][:, :, 1:], q[:, :, 1:])


def test_positions_of_a_model_of_ones_own() -> None:
    exec(snippet(HUGGING_FACE, "Shifted("), names := {"nn": nn})
    model = names["Embedder"]()
    ids = torch.zeros(2, 3).long()
    assert not torch.equal(model(ids), model(ids))
    assert torch.equal(model.eval()(ids), model(ids))


def test_the_module_in_a_model_of_ones_own() -> None:
    model = nn.Module()
    exec(snippet(TORCH_NN, "source_position"), {"self": model, "SHAPE": SHAPE})
    x = torch.zeros(4, 3, 512)
    assert not torch.equal(model.source_position(x), model.target_position(x))


def test_layers_of_torch() -> None:
    names: dict[str, Any] = {"torch": torch}
    exec(snippet(TORCH_NN, "TransformerDecoderLayer("), names)
    x = torch.randn(1, 3, 512)
    assert names["attention"](x, x, x)[0].shape == x.shape
    exec(snippet(TORCH_NN, "encoder.layers[0]"), names)
    assert len({layer.self_attn.position for layer in names["encoder"].layers}) == 1
    mask = nn.Transformer.generate_square_subsequent_mask(3)
    memory = names["encoder"](x)
    assert names["decoder"](x, memory, tgt_mask=mask).shape == x.shape
    names |= {"x": x, "padding": torch.tensor([[True, False, False]])}
    exec(snippet(TORCH_NN, "pos_q=pos"), names)
    assert names["out"].shape == x.shape
    assert torch.equal(names["pos"], torch.tensor([[0, 0, 1]]))
