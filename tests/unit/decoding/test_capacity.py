"""How long sentences may be, compared with what the model does one token later."""

import pytest
import torch

from shapeshift._system.errors import ShapeshiftError
from shapeshift.decoding.capacity import Capacity, capacity
from shapeshift.model import ModelConfig, Transformer, build
from shapeshift.positions import Chain, Part, PositionIds, Representation, Scheme, Shifted
from shapeshift.positions.placement import check_numbers

LEARNED = {"num_positions": 12}


def make(scheme: Scheme) -> Transformer:
    shape = {"dim": 8, "num_heads": 2, "ff_dim": 8, "encoder_layers": 1, "decoder_layers": 1}
    return build(ModelConfig(**shape), scheme, 9, 9)


LIMITED = {
    "learned": Scheme(parts=(Part("learned", options=LEARNED),)),
    "learned, cross": Scheme(parts=(Part("learned", "cross", options=LEARNED),)),
    "tupe": Scheme(parts=(Part("tupe", options=LEARNED),)),
    "tupe, cross": Scheme(parts=(Part("tupe", "cross", options=LEARNED),)),
    "tupe in a chain": Scheme(parts=(Part("tupe", options=LEARNED), Part("t5"))),
    "randomized": Scheme(
        PositionIds("randomized", {"max_position": 50, "max_length": 10}), (Part("sinusoidal"),)
    ),
    "randomized, learned": Scheme(
        PositionIds("randomized", {"max_position": 50, "max_length": 25}),
        (Part("learned", options={"num_positions": 50}),),
    ),
    "shifted, learned": Scheme(
        PositionIds("shifted", {"max_offset": 5, "authors": True}),
        (Part("learned", options=LEARNED),),
    ),
}


@pytest.mark.parametrize("scheme", LIMITED.values(), ids=list(LIMITED))
def test_one_token_more_is_refused_by_the_model(scheme):
    model = make(scheme)
    before = torch.get_rng_state()
    found = capacity(model)
    assert model.training
    assert torch.equal(torch.get_rng_state(), before)
    model.eval()
    assert found.source == found.target
    longest = torch.full((1, found.source), 5)
    hidden = model(longest, longest)
    assert hidden.shape[1] == found.target
    one_more, short = torch.full((1, found.source + 1), 5), longest[:, :1]
    with pytest.raises(ShapeshiftError):
        model(one_more, short)
    with pytest.raises(ShapeshiftError):
        model(short, one_more)


def test_a_table_in_one_stack_limits_that_side_and_others_nothing():
    scheme = Scheme(parts=(Part("learned", stacks="encoder", options=LEARNED),))
    assert capacity(make(scheme)) == Capacity(12, None)
    assert capacity(make(scheme)).source_subwords == 11
    assert capacity(make(Scheme(parts=(Part("sinusoidal"),)))) == Capacity()


def test_a_kind_of_ones_own_declares_its_limit():
    class Short(Representation):
        def max_position(self):
            return 6

        def bias(self, pos_q, pos_k, *, dtype):
            return (pos_k - pos_q.mT).to(dtype)

    model = make(Scheme())
    model.encoder[0].attention.position = Chain(Short(), Representation())
    assert capacity(model) == Capacity(7, None)
    with pytest.raises(ShapeshiftError, match="up to 9, but Short takes positions up to 6"):
        check_numbers(Shifted(max_offset=9), model.encoder[0].attention.position)
