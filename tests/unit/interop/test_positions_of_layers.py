"""Positions other than 0, 1, 2, … in the layers for torch.nn."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from shapeshift.interop.torch_nn import TransformerDecoderLayer, TransformerEncoderLayer
from shapeshift.positions import TUPE, Learned, Randomized, Representation, Shaw, Sinusoidal, Skew

B, T, S, D, H = 2, 5, 7, 16, 2
E = D // H
RIGHT = torch.ones(T, T, dtype=torch.bool).triu(1)
torch.manual_seed(3)
POS, SOURCE = (Randomized(max_position=60, max_length=9)(B, n) for n in (T, S))
"""With gaps, other ones for each sequence."""


def encoder(position: Representation | None = None) -> TransformerEncoderLayer:
    torch.manual_seed(0)
    position = Learned(dim=D) if position is None else position
    return TransformerEncoderLayer(D, H, 24, 0.0, batch_first=True, position=position)


def tokens(length: int) -> Tensor:
    torch.manual_seed(2)
    return torch.randn(B, length, D)


@pytest.mark.parametrize(
    "position",
    [Learned(dim=D), Sinusoidal(dim=D), TUPE(dim=D, num_heads=H), Shaw(num_heads=H, head_dim=E)],
)
def test_padding_on_the_left_changes_nothing(position: Representation) -> None:
    layer, x = encoder(position), tokens(T)
    padding = torch.tensor([[False] * T, [True] * 2 + [False] * 3])
    together = layer(x, RIGHT, padding, pos=((~padding).cumsum(1) - 1).clamp(min=0))
    torch.testing.assert_close(together[:1], layer(x[:1], RIGHT))
    torch.testing.assert_close(together[1:, 2:], layer(x[1:, 2:], RIGHT[:3, :3]))


@pytest.mark.parametrize("batch_first", [True, False])
def test_a_decoder_takes_positions_of_both_sides(batch_first: bool) -> None:
    torch.manual_seed(1)
    layer = TransformerDecoderLayer(
        D, H, 24, 0.0, batch_first=batch_first,
        position=Skew(num_heads=H, head_dim=E, causal=True), cross_position=Sinusoidal(dim=D),
    )  # fmt: skip
    given = [x if batch_first else x.transpose(0, 1) for x in (tokens(T), tokens(S))]
    counted = {"pos": torch.arange(T)[None], "memory_pos": torch.arange(S)[None]}
    plain = layer(*given, RIGHT)
    assert torch.equal(layer(*given, RIGHT, **counted), plain)
    for name, pos in (("pos", POS), ("memory_pos", SOURCE)):
        alone = layer(*given, RIGHT, **{name: pos})  # the other side counts from 0
        assert torch.equal(alone, layer(*given, RIGHT, **{**counted, name: pos}))
        assert not torch.allclose(alone, plain, atol=1e-2)


def test_positions_compile_as_one_graph() -> None:
    layer, x = encoder(), tokens(T)
    compiled = torch.compile(layer, fullgraph=True, backend="eager")
    for pos in (POS, SOURCE[:, :T]):
        torch.testing.assert_close(compiled(x, pos=pos), layer(x, pos=pos))


@pytest.mark.parametrize("reentrant", [False, True])
@pytest.mark.parametrize("whole", [True, False], ids=["layer", "attention"])
def test_checkpointing_repeats_the_positions(whole: bool, reentrant: bool) -> None:
    def gradients(again: bool) -> list[Tensor]:
        layer, x = encoder(), tokens(T).requires_grad_()
        part: nn.Module = layer if whole else layer.self_attn
        if again:
            forward = part.forward

            def repeated(*args: object, **options: object) -> object:
                def run(*args: object) -> object:
                    return forward(*args, **options)

                return checkpoint(run, *args, use_reentrant=reentrant)

            part.forward = repeated  # type: ignore[method-assign]
        torch.stack([layer(x, pos=pos) for pos in (POS, SOURCE[:, :T])]).square().sum().backward()
        return [each.grad for each in layer.parameters() if each.grad is not None]

    torch.testing.assert_close(gradients(again=True), gradients(again=False))
