"""Positions for layers that torch's stacks call."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from shapeshift.errors import ShapeshiftError
from shapeshift.interop.torch_nn import (
    TransformerDecoderLayer,
    TransformerEncoderLayer,
    use_positions,
)
from shapeshift.positions import TUPE, Learned, Randomized, Representation, Shaw, Sinusoidal, Skew

B, T, S, D, H = 2, 5, 7, 16, 2
E = D // H
RIGHT = torch.ones(T, T, dtype=torch.bool).triu(1)
torch.manual_seed(3)
POS, SOURCE = (Randomized(max_position=60, max_length=9)(B, n) for n in (T, S))
"""With gaps, other ones for each sequence."""


def encoder(position: Representation | None = None, num_layers: int = 2) -> nn.TransformerEncoder:
    torch.manual_seed(0)
    position = Learned(dim=D) if position is None else position
    layer = TransformerEncoderLayer(D, H, 24, 0.0, batch_first=True, position=position)
    return nn.TransformerEncoder(layer, num_layers, enable_nested_tensor=False)


def decoder() -> nn.TransformerDecoder:
    torch.manual_seed(1)
    layer = TransformerDecoderLayer(
        D, H, 24, 0.0, batch_first=True,
        position=Skew(num_heads=H, head_dim=E, causal=True), cross_position=Sinusoidal(dim=D),
    )  # fmt: skip
    return nn.TransformerDecoder(layer, 2)


def tokens(length: int) -> Tensor:
    torch.manual_seed(2)
    return torch.randn(B, length, D)


def test_a_stack_is_its_layers_with_positions() -> None:
    source, target, stack, other = tokens(S), tokens(T), encoder(), decoder()
    whole = nn.Transformer(D, H, custom_encoder=stack, custom_decoder=other, batch_first=True)
    memory, made = source, target
    for layer in stack.layers:
        memory = layer(memory, pos=SOURCE)
    for layer in other.layers:
        made = layer(made, memory, RIGHT, pos=POS, memory_pos=SOURCE)
    plain = whole(source, target, tgt_mask=RIGHT)
    with use_positions(stack, SOURCE), use_positions(other, POS, SOURCE):
        torch.testing.assert_close(whole(source, target, tgt_mask=RIGHT), made)
    assert torch.equal(whole(source, target, tgt_mask=RIGHT), plain)
    assert not torch.allclose(plain, made, atol=1e-2)


@pytest.mark.parametrize(
    "position",
    [Learned(dim=D), Sinusoidal(dim=D), TUPE(dim=D, num_heads=H), Shaw(num_heads=H, head_dim=E)],
)
def test_padding_on_the_left_changes_nothing(position: Representation) -> None:
    stack, x = encoder(position).eval(), tokens(T)
    padding = torch.tensor([[False] * T, [True] * 2 + [False] * 3])
    with use_positions(stack, ((~padding).cumsum(1) - 1).clamp(min=0)):
        together = stack(x, RIGHT, padding)
    torch.testing.assert_close(together[:1], stack(x[:1], RIGHT))
    torch.testing.assert_close(together[1:, 2:], stack(x[1:, 2:], RIGHT[:3, :3]))


def test_blocks_nest_and_a_call_has_the_last_word() -> None:
    stack, x = encoder(), tokens(T)
    first, last = stack.layers
    with use_positions(stack, POS):
        outer = stack(x)
        with use_positions(last, SOURCE[:, :T]):
            inner = stack(x)
        with pytest.raises(KeyError), use_positions(stack, SOURCE[:, :T]):
            raise KeyError
        assert torch.equal(stack(x), outer)
        named = first(x, pos=SOURCE[:, :T])
    torch.testing.assert_close(inner, last(first(x, pos=POS), pos=SOURCE[:, :T]))
    assert torch.equal(named, first(x, pos=SOURCE[:, :T]))
    assert torch.equal(stack(x), last(first(x)))


def test_positions_compile_as_one_graph() -> None:
    stack, x = encoder(num_layers=1), tokens(T)
    compiled = torch.compile(stack, fullgraph=True, backend="eager")
    for pos in (POS, SOURCE[:, :T]):
        with use_positions(stack, pos):
            torch.testing.assert_close(compiled(x), stack(x))


OTHERS = SOURCE[:, :T]
reentrant_or_not = pytest.mark.parametrize("reentrant", [False, True])


def gradients(stack: nn.Module) -> list[Tensor]:
    return [each.grad for each in stack.parameters() if each.grad is not None]


@reentrant_or_not
def test_a_block_inside_of_what_is_checkpointed_runs_again_with_it(reentrant: bool) -> None:
    again, plain = encoder(), encoder()

    def loss(stack: nn.Module, pos: Tensor | None) -> Tensor:
        def through(x: Tensor) -> Tensor:
            with use_positions(stack, pos):
                out: Tensor = stack(x)
            return out

        x = tokens(T).requires_grad_()
        out = checkpoint(through, x, use_reentrant=reentrant) if stack is again else through(x)
        return out.square().sum()

    for stack in (again, plain):
        sum(loss(stack, pos) for pos in (POS, OTHERS, None)).backward()
    torch.testing.assert_close(gradients(again), gradients(plain))


@reentrant_or_not
def test_positions_of_a_call_hold_when_a_layer_runs_again(reentrant: bool) -> None:
    again, plain = (encoder(num_layers=1).layers[0] for _ in range(2))
    x = tokens(T).requires_grad_()

    def call(x: Tensor, pos: Tensor) -> Tensor:
        out: Tensor = again(x, pos=pos)
        return out

    outputs = [checkpoint(call, x, pos, use_reentrant=reentrant) for pos in (POS, OTHERS)]
    with use_positions(again, POS + 1):
        torch.stack(outputs).square().sum().backward()
    torch.stack([plain(x, pos=pos) for pos in (POS, OTHERS)]).square().sum().backward()
    torch.testing.assert_close(gradients(again), gradients(plain))


def run(stack: nn.TransformerEncoder, reentrant: bool) -> Tensor:
    x = tokens(T).requires_grad_()
    for layer in stack.layers:
        x = checkpoint(layer, x, use_reentrant=reentrant)
    return x.square().sum()


def forgotten(stack: nn.TransformerEncoder, reentrant: bool) -> None:
    with use_positions(stack, POS):
        loss = run(stack, reentrant)
    loss.backward()


def given_too_late(stack: nn.TransformerEncoder, reentrant: bool) -> None:
    loss = run(stack, reentrant)
    with use_positions(stack, POS):
        loss.backward()


def of_two_batches(stack: nn.TransformerEncoder, reentrant: bool) -> None:
    with use_positions(stack, POS):
        loss = run(stack, reentrant)
    with use_positions(stack, OTHERS):
        (loss + run(stack, reentrant)).backward()


def attention_alone(stack: nn.TransformerEncoder, reentrant: bool) -> None:
    [layer, _], x = stack.layers, tokens(T).requires_grad_()
    attend = layer.self_attn.forward

    def again(x: Tensor, *_: object, **__: object) -> tuple[Tensor, None]:
        def call(x: Tensor) -> Tensor:
            return attend(x, x, x, need_weights=False)[0]

        return checkpoint(call, x, use_reentrant=reentrant), None

    layer.self_attn.forward = again
    layer(x, pos=POS).sum().backward()


@reentrant_or_not
@pytest.mark.parametrize("mistake", [forgotten, given_too_late, of_two_batches, attention_alone])
def test_layers_that_might_run_again_with_other_positions_are_refused(
    mistake: Any, reentrant: bool
) -> None:
    with pytest.raises(ShapeshiftError, match=r"inside of the function that is"):
        mistake(encoder(), reentrant)


def test_layers_without_positions_run_again() -> None:
    stack = encoder()
    with use_positions(stack, POS), torch.no_grad():  # validation
        stack.eval()(tokens(T))
    run(stack.train(), False).backward()
    assert all(each.grad is not None for each in stack.parameters())


@pytest.mark.parametrize(
    ("model", "options", "message"),
    [
        (nn.Linear(2, 2), {}, "^Linear has no layer that takes positions; build it of shapeshift"),
        (nn.ModuleList([encoder(), decoder()]), {}, "^ModuleList has encoder and decoder layers"),
        (
            encoder(),
            {"memory_pos": SOURCE},
            "^TransformerEncoder has no decoder layer to take memory_pos",
        ),
    ],
)
def test_what_is_refused(model: nn.Module, options: dict[str, Tensor], message: str) -> None:
    with pytest.raises(ShapeshiftError, match=message), use_positions(model, POS, **options):
        pass
