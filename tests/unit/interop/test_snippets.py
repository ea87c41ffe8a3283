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


def run(page: str, mark: str, names: dict[str, Any] | None = None) -> dict[str, Any]:
    """Run the only Python block of a page that contains `mark`, and return its names."""
    text = (ROOT / page).read_text(encoding="utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL)
    (snippet,) = [block for block in blocks if mark in block]
    names = {} if names is None else names
    exec(snippet, names)
    return names


@pytest.mark.parametrize("page", ["README.md", HUGGING_FACE])
def test_shape_in_bart(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # A folder of the name that the snippet loads stands in for the download.
    ALL["bart"].build(positions=200).save_pretrained(tmp_path / "facebook/bart-base")
    monkeypatch.chdir(tmp_path)
    model = run(page, "AutoModelForSeq2SeqLM")["model"]
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
    names = run(HUGGING_FACE, "use_position(")
    [position] = names["model"].get_submodule("model.shapeshift_positions").children()
    assert type(position) is Representation
    names["model"].save_pretrained("my-model")
    run(HUGGING_FACE, "import shapeshift\n", names)
    [position] = names["model"].get_submodule("model.shapeshift_positions").children()
    assert type(position) is Representation


def test_rotary_positions_of_a_released_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    models = json.loads((ROOT / "tests/numerics/released_rope.json").read_text())["models"]
    config = tmp_path / "Llama-3.1-8B" / "config.json"
    config.parent.mkdir()
    config.write_text(json.dumps(models["meta-llama/Llama-3.1-8B"]["config"]))
    monkeypatch.chdir(tmp_path)
    q = torch.ones(1, 2, 3, 128)
    given = {"q": q, "k": q, "pos": torch.arange(3)[None]}
    names = run(HUGGING_FACE, "from_config(", given)
    assert names["theta"].shape == (64,)
    assert not torch.equal(names["q"][:, :, 1:], q[:, :, 1:])


def test_positions_of_a_model_of_ones_own() -> None:
    model = run(HUGGING_FACE, "Shifted(", {"nn": nn})["Embedder"]()
    ids = torch.zeros(2, 3).long()
    assert not torch.equal(model(ids), model(ids))
    assert torch.equal(model.eval()(ids), model(ids))


def test_the_module_in_a_model_of_ones_own() -> None:
    model = nn.Module()
    run(TORCH_NN, "source_position", {"self": model, "SHAPE": SHAPE})
    x = torch.zeros(4, 3, 512)
    assert not torch.equal(model.source_position(x), model.target_position(x))


def test_layers_of_torch() -> None:
    names = run(TORCH_NN, "TransformerDecoderLayer(", {"torch": torch})
    x = torch.randn(1, 3, 512)
    assert names["attention"](x, x, x)[0].shape == x.shape
    run(TORCH_NN, "encoder.layers[0]", names)
    assert len({layer.self_attn.position for layer in names["encoder"].layers}) == 1
    mask = nn.Transformer.generate_square_subsequent_mask(3)
    memory = names["encoder"](x)
    assert names["decoder"](x, memory, tgt_mask=mask).shape == x.shape
    names |= {"x": x, "padding": torch.tensor([[True, False, False]])}
    run(TORCH_NN, "pos_q=pos", names)
    assert names["out"].shape == x.shape
    assert torch.equal(names["pos"], torch.tensor([[0, 0, 1]]))
