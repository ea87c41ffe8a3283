"""FlexAttention, without a GPU, in plain steps: what it adds by distance is what the hooks give."""

from collections.abc import Callable
from copy import copy
from functools import partial

import pytest
import torch
from torch import Tensor
from torch._dynamo.testing import CompileCounterWithBackend
from torch.nn.attention import flex_attention as torch_flex
from torch.nn.attention.flex_attention import BlockMask, create_block_mask

from shapeshift.attention import Call, attend, attend_with_probs, causal_mask
from shapeshift.attention.backends import flex
from shapeshift.model.transformer import padding_mask
from shapeshift.positions import KINDS, Chain, Representation, get

from .conftest import READS, Watch

B, H, E = 3, 2, 8
F64 = torch.float64
SHORT = {"t5": {"num_buckets": 8, "max_distance": 6}, "shaw": {"add_to": "keys", "max_distance": 3}}
"""Options that the short sequences of these tests reach."""


def make(name: str, **options: object) -> Representation:
    torch.manual_seed(0)
    sizes = {"dim": H * E, "num_heads": H, "head_dim": E}
    return get(name, **sizes, **{**SHORT.get(name, {}), **options}).double()


SERVED = {
    name: make(name)
    for name, entry in KINDS.items()
    if entry.build.distance_bias is not Representation.distance_bias
}
assert {"alibi", "kerple", "t5"} <= SERVED.keys()
SERVED["t5, causal"] = make("t5", causal=True)
SERVED |= {"a chain": Chain(make("alibi"), make("t5"), make("kerple"))}


@pytest.fixture
def runs(monkeypatch):
    """Let FlexAttention serve on a CPU, backward passes too; return a list of its calls."""
    calls: list[object] = []
    run = flex.flex_attention

    def counted(*args, **options):
        calls.append(options["block_mask"])
        return run(*args, **options)

    torch._dynamo.reset()  # which compiles each call once, and counts
    monkeypatch.setattr(flex, "flex_attention", counted)
    monkeypatch.setattr(flex, "refuses", partial(refusal, flex.refuses))
    monkeypatch.setattr(Call, "has_flex", True)
    monkeypatch.setattr(Call, "dtype", torch.float32)
    monkeypatch.setattr(flex, "FLEX_FROM", 0)
    monkeypatch.setattr(flex, "MOST_SCORES", 0)
    monkeypatch.setattr(torch_flex, "_validate_device", lambda *_: None)
    yield calls
    torch._dynamo.reset()


def refusal(refuses: Callable[[Call], str | None], call: Call) -> str | None:
    """Return the refusal of a call of any sizes in float64, but for those of the kernels of a
    GPU."""
    call = copy(call)
    call.E = 16
    return refuses(call)


def inputs(length: int) -> tuple[list[Tensor], Tensor, Tensor]:
    """Heads of queries, keys and values; a mask of padding; positions, an offset a sentence."""
    torch.manual_seed(1)
    heads = torch.randn(3, B, H, length, E, dtype=F64)
    ids = torch.full((B, length), 4)
    ids[1, length // 2 :] = ids[2, length - 1 :] = 0
    pos = torch.arange(length) + torch.tensor([[0], [40], [7]])
    return [x.clone().requires_grad_() for x in heads], padding_mask(ids, F64), pos


def explicit(
    heads: list[Tensor], mask: Tensor | None, position: Representation, *pos: Tensor, causal: bool
) -> Tensor:
    """Attention in plain steps, by the hooks."""
    if causal:
        later = causal_mask(pos[0].shape[1], pos[1].shape[1], F64, heads[0].device)
        mask = later if mask is None else mask + later
    return attend_with_probs(*heads, mask, position, *pos)[0]


def outcome(out: Tensor, tensors: list[Tensor]) -> list[Tensor]:
    out.square().sum().backward()
    grads = [x.grad for x in tensors if x.grad is not None]
    for x in tensors:
        x.grad = None
    assert len(grads) >= 3
    return [out.detach(), *grads]


@pytest.mark.filterwarnings("ignore:flex_attention called without")
@pytest.mark.parametrize("causal", [False, True], ids=["all", "causal"])
@pytest.mark.parametrize("name", SERVED)
def test_it_adds_what_the_hooks_add(name, causal, runs, ran):
    position = SERVED[name]
    if position.causal_only and not causal:
        pytest.skip("it has no meaning for keys right of their query")
    heads, mask, pos = inputs(11)
    tensors = [*heads, *position.parameters()]
    got = outcome(attend(*heads, mask, position, pos, pos, causal=causal), tensors)
    assert ran == ["flex"]
    assert len(runs) == 1
    expected = outcome(explicit(heads, mask, position, pos, pos, causal=causal), tensors)
    for one, other in zip(got, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12)


@pytest.mark.filterwarnings("ignore:flex_attention called without")
@pytest.mark.parametrize("name", ["alibi", "t5"])
def test_left_padding_packing_and_no_mask(name, runs, ran):
    """Positions need not grow by one; queries may be the last of the keys; a mask may be of any
    shape, or there may be none."""
    position = SERVED[name]
    heads, _, pos = inputs(12)
    packed = torch.tensor([[0, 1, 2, 3, 0, 1, 2, 3, 4, 0, 1, 2]])
    document = (packed == 0).cumsum(1)
    apart = torch.zeros(1, 1, 12, 12, dtype=F64)
    apart.masked_fill_(document[:, None, :, None] != document[:, None, None], float("-inf"))
    for mask, positions, queries in ((apart, packed, 12), (None, pos, 12), (None, pos, 5)):
        q, pos_q = heads[0][:, :, -queries:], positions[:, -queries:]
        got = attend(q, *heads[1:], mask, position, pos_q, positions, causal=True)
        expected = explicit([q, *heads[1:]], mask, position, pos_q, positions, causal=True)
        torch.testing.assert_close(got, expected, rtol=0, atol=1e-12)
    assert len(runs) == 3
    assert ran == ["flex"] * 3


def test_what_is_not_by_distance_is_left_to_other_backends(runs, ran):
    class NoBias(KINDS["alibi"].build):  # type: ignore[name-defined, misc]
        def bias(self, pos_q, pos_k, *, dtype):
            return None

    heads, mask, pos = inputs(6)
    others = (
        NoBias(num_heads=H),
        make("shaw", add_to="values"),
        make("fire"),
        Chain(make("shaw"), make("tupe")),
        Chain(make("t5"), make("shaw")),
        Chain(make("t5"), make("fire")),
    )
    for position in others:
        attend(*heads, mask, position, pos, pos)
    assert not runs
    assert len(ran) == len(others)
    assert "flex" not in ran
    attend(*heads, mask, Chain(make("t5"), make("alibi")), pos, pos)
    assert ran[-1] == "flex"
    assert len(runs) == 1


@pytest.mark.parametrize("causal", [False, True], ids=["all", "causal"])
@pytest.mark.parametrize("padded", ["none", "right", "left"])
@pytest.mark.parametrize("size", [(128, 128), (300, 300), (130, 513), (256, 384)])
def test_blocks_are_those_of_all_pairs(size, padded, causal):
    """The same as PyTorch's own way, which makes a tensor of all pairs."""
    num_queries, num_keys = size
    q, k = torch.zeros(B, H, num_queries, E), torch.zeros(B, H, num_keys, E)
    ids = torch.ones(B, num_keys, dtype=torch.int64)
    ids[1, 100:] = ids[2, 128:] = 0
    ids = ids.flip(1) if padded == "left" else ids
    mask = None if padded == "none" else padding_mask(ids, torch.float32)
    called = set()
    with Watch(lambda operator, *_: called.add(operator.overloadpacket.__name__)):
        ours = flex._block_mask(q, k, mask, causal)
    assert not called & READS
    if ours is None:
        assert padded == "none"
        assert not causal
        return
    theirs = create_block_mask(ours.mask_mod, B, None, num_queries, num_keys, device="cpu")
    for one, other in zip(whole_and_partial(ours), whole_and_partial(theirs), strict=True):
        assert torch.equal(one, other)
    assert ours.kv_num_blocks.dtype == ours.kv_indices.dtype == torch.int32


def whole_and_partial(mask: BlockMask) -> list[Tensor]:
    """Return which blocks are computed whole and which pair by pair, for queries and for keys."""
    made = []
    for side in ("kv", "full_kv", "q", "full_q"):
        counts, numbers = getattr(mask, f"{side}_num_blocks"), getattr(mask, f"{side}_indices")
        listed = torch.arange(numbers.shape[-1]) < counts[..., None]
        made.append(torch.zeros_like(listed).scatter(-1, numbers.long(), listed))
    return made


@pytest.mark.parametrize("whole", [True, False], ids=["a layer", "the kernel alone"])
def test_one_graph_serves_all_lengths(whole, runs, monkeypatch):
    """As on a GPU, where the kernel is compiled, within a compiled layer or by itself."""
    graphs = CompileCounterWithBackend("aot_eager")
    monkeypatch.setattr(flex, "flex_attention", torch_flex.flex_attention)  # without the counting
    compute = attend
    if whole:
        compute = torch.compile(attend, dynamic=True, fullgraph=True, backend=graphs)
    else:
        kernel = torch.compile(torch_flex.flex_attention, dynamic=True, backend=graphs)
        monkeypatch.setattr(flex, "flex_attention", kernel)
    position, counts = SERVED["t5"], []
    for length in (9, 11, 14):
        heads, mask, pos = inputs(length)
        got = compute(*heads, mask, position, pos, pos, causal=True)
        expected = explicit(heads, mask, position, pos, pos, causal=True)
        torch.testing.assert_close(got, expected, rtol=0, atol=1e-12)
        counts.append(graphs.frame_count)
    assert counts[0] == counts[-1]
    assert any(
        "flex_attention" in graph.print_readable(print_output=False) for graph in graphs.graphs
    )
