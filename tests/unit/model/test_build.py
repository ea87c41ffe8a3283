"""From settings to a model: sizes, tables, initial values, what is refused."""

from copy import deepcopy

import pytest
import torch
from torch import nn

from shapeshift._system.errors import ShapeshiftError
from shapeshift.model import ModelConfig, Transformer, build
from shapeshift.positions import SCHEMES

SMALL = {"size": "tiny", "dim": 8, "num_heads": 2, "ff_dim": 16}


def make(scheme: str = "ape", sizes: tuple[int, int] = (9, 9), **settings: object) -> Transformer:
    return build(ModelConfig(**{**SMALL, **settings}), SCHEMES[scheme], *sizes)


def count(model: Transformer) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


def test_transformer_base_has_61_million_parameters():
    vocabulary, d, ff = 33_000, 512, 2048
    attention = 4 * (d * d + d)
    feed_forward = d * ff + ff + ff * d + d
    norm = 2 * d
    encoder = 6 * (attention + feed_forward + 2 * norm) + norm
    decoder = 6 * (2 * attention + feed_forward + 3 * norm) + norm
    by_hand = vocabulary * d + encoder + decoder
    with torch.device("meta"):
        assert count(build(ModelConfig(), "ape", vocabulary, vocabulary)) == by_hand
    assert round(by_hand / 1e6) == 61


def test_one_table_two_tables_three_tables():
    one = make()
    assert one.source.tokens.weight is one.target.tokens.weight is one.output.weight
    two = make(share_embeddings=False, sizes=(7, 9))
    assert two.source.tokens.weight.shape == (7, 8)
    assert two.target.tokens.weight is two.output.weight
    three = make(share_embeddings=False, tie_output=False)
    assert len({three.source.tokens.weight, three.target.tokens.weight, three.output.weight}) == 3
    assert count(three) - count(one) == 2 * 9 * 8


SHARED = {"source.tokens.weight", "target.tokens.weight", "output.weight"}


@pytest.mark.parametrize("scheme", ["ape", "t5", "tupe"])
@pytest.mark.parametrize("named", ["once", "everywhere"])
def test_a_functional_call_leaves_shared_weights_as_they_are(scheme, named):
    model, ids = make(scheme).eval(), torch.tensor([[4, 5, 6], [7, 8, 3]])
    own = dict(model.named_parameters(remove_duplicate=False))
    other = {x: torch.randn_like(x) for x in own.values()}
    first = dict(model.named_parameters())
    assert len(own) > len(first)
    given = {name: other[x] for name, x in (own if named == "everywhere" else first).items()}
    found = torch.func.functional_call(model, given, (ids, ids))
    now = dict(model.named_parameters(remove_duplicate=False))
    assert all(now[name] is x for name, x in own.items())
    twin = deepcopy(model)
    twin.load_state_dict({name: other[x] for name, x in own.items()}, strict=False)
    assert torch.equal(found, twin(ids, ids))


@pytest.mark.parametrize("scheme", ["ape", "t5"])
def test_shared_weights_have_their_names_and_stay_one_when_tensors_are_replaced(scheme):
    """A checkpoint holds the first name, and `state_dict` all of them."""
    model = make(scheme)
    assert model.state_dict().keys() >= SHARED
    assert {name for name, _ in model.named_parameters()} & SHARED == {"source.tokens.weight"}
    sizes = [count(model)]
    state = {name: x.clone() for name, x in model.state_dict().items()}
    model.load_state_dict(state, assign=True)
    with torch.device("meta"):
        empty = make(scheme)
    empty.to_empty(device="cpu").load_state_dict(state)
    sizes += [count(model), count(empty), count(deepcopy(model)), count(model.double())]
    assert len(set(sizes)) == 1
    assert model.source.tokens.weight is model.output.weight


@pytest.mark.parametrize("around", [nn.Sequential, torch.compile])
def test_shared_weights_stay_one_when_a_module_around_the_model_is_loaded(around):
    model = make("tupe")
    outer = deepcopy(around(model))  # whose hooks are those of the copy
    copy = next(x for x in outer.modules() if isinstance(x, Transformer))
    state = {name: torch.randn_like(x) for name, x in outer.state_dict().items()}
    outer.load_state_dict(state, assign=True)
    assert count(copy) == count(model)
    assert copy.source.tokens.weight is copy.target.tokens.weight is copy.output.weight
    ours = copy.decoder[0].attention.position, copy.decoder[1].attention.position
    assert ours[0].query is ours[1].query


def test_sides_of_different_size_cannot_share():
    with pytest.raises(ShapeshiftError, match=r"\(7\).*\(9\).*share_embeddings=false"):
        make(sizes=(7, 9))


def test_embeddings_start_with_unit_variance_and_a_zero_for_padding():
    torch.manual_seed(0)
    model = make(sizes=(500, 500), dim=64)
    assert not model.output.weight[0].any()
    assert model.output.weight[1:].std().item() == pytest.approx(1 / 8, rel=0.02)
    x, _ = make("nope", sizes=(500, 500), dim=64).eval().source(torch.arange(1, 500)[None])
    assert x.std().item() == pytest.approx(1, rel=0.02)


def test_only_pre_norm_stacks_end_in_a_norm():
    pre, post = make(), make(norm="post")
    assert isinstance(pre.encoder_norm, torch.nn.LayerNorm)
    assert isinstance(post.decoder_norm, torch.nn.Identity)
    assert count(pre) - count(post) == 2 * 2 * 8


IDS = torch.tensor([[5, 6, 3], [7, 3, 0]])


@pytest.mark.parametrize(
    ("source", "target", "said"),
    [
        (IDS[0], IDS, r"integer tensor \(B, T\).*, got int64 \(3,\)"),
        (IDS, IDS.float(), r"integer tensor \(B, T\).*, got float32 \(2, 3\)"),
        (IDS, IDS.flip(1), r"target_input must start with <s>, .* padding \(0\) on its right"),
        (IDS, IDS[:1], "2 sources and 1 targets; a batch has one of each for every pair"),
    ],
)
def test_what_is_no_batch_is_refused(source, target, said):
    with pytest.raises(ShapeshiftError, match=said):
        make()(source, target)


def test_a_step_of_decoding_takes_a_token_for_each_row():
    state = make().eval().start(IDS, beam=2)
    for count in (1, 2, 8):
        with pytest.raises(ShapeshiftError, match=f"all 4 rows, .* 2 beams, got {count}"):
            state.step(torch.ones(count, dtype=torch.int64))
    assert state.begin(torch.tensor([1, 1])).shape == (2, 9)
    assert state.step(torch.tensor([5, 6, 7, 8])).shape == (4, 9)
