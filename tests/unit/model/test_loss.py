"""What the loss refuses of a training loop of one's own: it would be silently wrong."""

import pytest
import torch
from torch import Tensor

from shapeshift._system.errors import ShapeshiftError
from shapeshift.model import ModelConfig, build, label_smoothed_loss
from shapeshift.model.loss import linear_cross_entropy

BATCH = {
    "source": torch.tensor([[5, 6, 7, 3], [8, 3, 0, 0]]),
    "target_input": torch.tensor([[2, 5, 6], [2, 7, 0]]),
    "target_output": torch.tensor([[5, 6, 3], [7, 3, 0]]),
}
MODEL = build(ModelConfig(size="tiny", dim=8, num_heads=2, ff_dim=16), "ape", 10, 10).eval()


def changed(name: str, row: list[int]) -> dict[str, Tensor]:
    """Return the batch with another second row of one tensor."""
    return {**BATCH, name: torch.stack((BATCH[name][0], torch.tensor(row)))}


@pytest.mark.parametrize(
    ("batch", "message"),
    [
        ({**BATCH, "target_input": BATCH["target_input"][:, :2]}, r"\(B, T\).* got .*\(2, 2\)"),
        ({**BATCH, "target_output": BATCH["target_output"].float()}, "must be integers"),
        ({**BATCH, "source": BATCH["source"][:1]}, r"\(B, S\).*got int64 \(1, 4\)"),
        ({**BATCH, "source": BATCH["source"][0]}, r"\(B, S\).*got int64 \(4,\)"),
        (changed("target_output", [7, 3, -100]), "target_output must have ids from 0 to 9.* -100"),
        (changed("target_input", [2, 10, 0]), "target_input must have ids .* got 10"),
        (changed("source", [8, 3, 0, -1]), "source must have ids .* got -1"),
        (changed("target_input", [2, 0, 0]), "must have padding .* where target_output has some"),
        (changed("target_input", [2, 7, 7]), "must have padding .* where target_output has some"),
        (changed("source", [0, 0, 8, 3]), "row of source .*padding .* on its right alone"),
        (changed("source", [0, 0, 0, 0]), "row of source"),
        ({name: ids[:, :0] for name, ids in BATCH.items()}, "row of source"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("packs", [False, True])
def test_a_batch_that_would_be_read_wrongly(batch, message, packs, monkeypatch):
    monkeypatch.setattr(MODEL, "packs", packs)
    with pytest.raises(ShapeshiftError, match=message):
        label_smoothed_loss(MODEL, **batch, epsilon=0.1)


@pytest.mark.parametrize("epsilon", [-0.1, 1.0, float("nan")])
def test_a_smoothing_out_of_its_range(epsilon):
    with pytest.raises(ShapeshiftError, match="epsilon must be at least 0 and below 1"):
        label_smoothed_loss(MODEL, **BATCH, epsilon=epsilon)


def test_a_source_that_is_padded_on_the_left_is_not_encoded():
    for source in ([[0, 0, 8, 3]], [[0, 0]]):
        for read in (MODEL.encode, MODEL.start):
            with pytest.raises(ShapeshiftError, match=r"row of source .* on its right alone"):
                read(torch.tensor(source))


@pytest.mark.parametrize(
    "change",
    [
        lambda hidden, weight, targets: (hidden, weight, targets.to("meta")),
        lambda hidden, weight, targets: (hidden, weight.to("meta"), targets),
        lambda hidden, weight, targets: (hidden[:2], weight, targets),
        lambda hidden, weight, targets: (hidden, weight, targets.float()),
        lambda hidden, weight, targets: (hidden, weight, targets[None]),
        lambda hidden, weight, targets: (hidden, weight[:0], targets),
    ],
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_targets_that_do_not_fit_are_refused(dtype, change):
    inputs = torch.randn(3, 8, dtype=dtype), torch.randn(5, 8, dtype=dtype), torch.tensor([1, 2, 4])
    expected = linear_cross_entropy(*inputs, 0.1)
    found = linear_cross_entropy(*inputs[:2], inputs[2].int(), 0.1)
    assert all(map(torch.equal, found, expected))
    with pytest.raises(ShapeshiftError, match=r"targets must be"):
        linear_cross_entropy(*change(*inputs), 0.1)
