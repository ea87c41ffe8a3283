"""The real tokens of a batch alone: where they go, and what must still see whole sentences."""

from __future__ import annotations

import torch
from torch import Tensor

from shapeshift.model import ModelConfig, Transformer, build, label_smoothed_loss
from shapeshift.model.packing import Packing
from shapeshift.positions import Representation
from shapeshift.training.step import compile_layers


def packing() -> Packing:
    return Packing(torch.tensor([0, 1, 2, 3, 4, 6]), (3, 3))


def test_tokens_go_to_their_places_and_back() -> None:
    tokens = torch.arange(12.0).view(6, 2)
    padded = packing().unpack(tokens)
    assert padded.shape == (3, 3, 2)
    assert padded[1, :2].tolist() == [[6, 7], [8, 9]]
    assert padded[2, 0].tolist() == [10, 11]
    assert packing().pack(padded).equal(tokens)


def test_heads_are_those_of_the_padded_batch() -> None:
    x = torch.randn(6, 3 * 2 * 4)
    whole = packing().unpack(x).view(3, 3, 3, 2, 4)  # (B, T, P, H, E)
    for part, heads in enumerate(packing().split_heads(x, 2, 4)):
        assert heads.equal(whole[:, :, part].transpose(1, 2))
    joined = packing().join_heads(heads)
    assert joined.equal(x.view(6, 3, 8)[:, 2])


def test_gradients_of_first_and_second_order() -> None:
    here = packing()

    def run(x: Tensor) -> Tensor:
        first, second = here.split_heads(here.pack(here.unpack(x)), 2, 2)
        real = torch.zeros(9, dtype=torch.float64).index_fill(0, here.real, 1.0)
        seen = (first * second.sin()) * real.view(3, 1, 3, 1)
        return here.join_heads(seen)

    x = torch.randn(6, 8, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(run, x)
    assert torch.autograd.gradgradcheck(run, x, fast_mode=True)


class Neighbours(Representation):
    """Adds to each query what stands left of it in its sentence."""

    def inputs(
        self, q: Tensor, k: Tensor, v: Tensor, pos_q: Tensor, pos_k: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        return q + torch.nn.functional.pad(q, (0, 0, 1, 0))[:, :-1], k, v


def loss(model: Transformer) -> Tensor:
    source = torch.tensor([[5, 6, 7, 3], [8, 3, 0, 0], [9, 4, 3, 0]])
    target_input = torch.tensor([[2, 5, 6], [2, 0, 0], [2, 7, 0]])
    target_output = torch.tensor([[5, 6, 3], [3, 0, 0], [7, 3, 0]])
    return label_smoothed_loss(model, source, target_input, target_output, 0.1).smoothed


def test_a_representation_that_mixes_tokens_sees_sentences() -> None:
    config = ModelConfig(size="tiny", dim=8, num_heads=2, ff_dim=16, dropout=0.0)
    model = build(config, "nope", 10, 10).double()
    plain = loss(model)
    for layer in (*model.encoder, *model.decoder):
        layer.attention.position = Neighbours()
    packed = loss(model)
    model.packs = False
    torch.testing.assert_close(packed, loss(model), rtol=0, atol=1e-10)
    assert not packed.isclose(plain)


def test_compiled_layers_have_one_shape_of_input() -> None:
    model = build(ModelConfig(size="tiny"), "ape", 10, 10)
    compile_layers(model)
    assert not model.packs
