"""Every cell that the contract holds for.

Schemes, kinds × places and position_ids come from the registries: what is registered is tested. The
variants are the options that change what a kind computes.
"""

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import replace
from operator import itemgetter
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from shapeshift._system.errors import ShapeshiftError
from shapeshift.model import ModelConfig, build
from shapeshift.model.catalogue import cells
from shapeshift.positions import (
    KINDS,
    POSITION_IDS,
    SCHEMES,
    Part,
    PositionIds,
    Scheme,
    Stack,
    place,
)

VOCABULARY = 11


def part(kind: str, place: str | None = "self", **options: object) -> Part:
    return Part(kind, place, options=options)


SINUSOIDAL = Part("sinusoidal", "embedding")


CELLS = {f"{cell.kind}@{cell.place}": Scheme(parts=(cell,)) for cell in cells()}
STACKED = {
    f"{name} of the {stack}": (scheme, stack)
    for name, scheme in CELLS.items()
    for part in scheme.parts
    for stack in ("encoder", "decoder")
    if stack == "decoder" or (part.place == "self" and part.stacks == "both")
}


def since_the_highest(tokens: Tensor) -> Tensor:
    """Position ids of one's own: how many tokens stand between each one and the highest so far."""
    index = torch.arange(tokens.shape[1], device=tokens.device)
    return index - tokens.cummax(dim=1).indices


OF_TOKENS: dict[str, dict[str, Any]] = {
    "packed": {"separator": 6},
    "abacus": {"digits": [5, 7, 8], "max_offset": 30},
    "coupled": {"function": since_the_highest, "max_offset": 30},
}
NUMBERINGS = {
    f"position_ids:{name}": Scheme(
        PositionIds(name, OF_TOKENS.get(name, {})), (SINUSOIDAL, Part("sinusoidal", "cross"))
    )
    for name in POSITION_IDS
}
SHORT = {"max_distance": 2}
PARTS: dict[str, tuple[Part, ...]] = {
    "shaw-keys": (part("shaw", add_to="keys", **SHORT),),
    "shaw-values": (part("shaw", add_to="values", **SHORT),),
    "shaw-one-table": (part("shaw", share_tables=True, **SHORT),),
    "shaw-per-head": (part("shaw", per_head=True, **SHORT),),
    "shaw-keys-per-head": (
        part("shaw", add_to="keys", per_head=True, **SHORT), part("shaw", add_to="values"),
    ),
    "shaw-one-for-all-layers": (Part("shaw", share_layers=True),),
    "shaw-no-distance": (part("shaw", max_distance=0),),
    "shaw-first-layer": (Part("shaw", layers=1),),
    "sinusoidal-v": (part("sinusoidal", add_to="v"),),
    "sinusoidal-qkv": (part("sinusoidal", "cross", add_to="qkv", channels="tensor2tensor"),),
    "skew-one-table": (part("skew", max_distance=3, per_head=False),),
    "t5-each-layer": (
        # Seven borders in the encoder: the compiler takes equal sizes, of batches too, for one.
        Part("t5", share_layers=False, options={"num_buckets": 16, "max_distance": 12}),
    ),
    "rotary-halves-partial-linear": (
        part("rotary", pairs="halves", fraction=0.5, scaling="linear", factor=4.0),
    ),
    "rotary-ntk": (part("rotary", scaling="ntk", factor=4.0),),
    "rotary-yarn-partial": (
        part("rotary", fraction=0.5, scaling="yarn", factor=4.0, original_length=16),
    ),
    "rotary-of-a-release": (
        part("rotary", pairs="halves", rope_parameters={
            "rope_type": "yarn", "rope_theta": 10000.0, "partial_rotary_factor": 0.5,
            "factor": 4.0, "original_max_position_embeddings": 16,
        }),
    ),
    "rotary-by-length": (
        part("rotary", length=1000, rope_parameters={
            "rope_type": "dynamic", "rope_theta": 10000.0, "factor": 2.0,
            "original_max_position_embeddings": 8,
        }),
    ),
    "rotary-everywhere": (part("rotary"), part("rotary", "cross")),
    "xpos-fast": (Part("xpos", stacks="decoder", options={"scale_base": 20.0}),),
    "tupe-each-layer": (Part("tupe", share_layers=False),),
    "rotary-beside-values-and-t5": (
        part("rotary"), part("shaw", add_to="values", **SHORT), part("t5"),
    ),
    "rotary-encoder-shaw-decoder": (
        Part("rotary", stacks="encoder"), Part("shaw", stacks="decoder"),
    ),
    "tupe-r": (Part("tupe"), Part("t5")),
    "two-at-one-place": (part("sinusoidal"), part("shaw", **SHORT)),
    "shaw-twice": (
        part("shaw", add_to="keys", **SHORT), part("shaw", max_distance=5, per_head=True),
    ),
}  # fmt: skip
NEAR = {"max_offset": 30}
VARIANTS = {name: Scheme(parts=parts) for name, parts in PARTS.items()} | {
    "randomized-alibi": Scheme(PositionIds("randomized", {"max_length": 64}), (Part("alibi"),)),
    "packed-rotary-t5": Scheme(
        PositionIds("packed", OF_TOKENS["packed"]),
        (part("rotary"), part("t5"), part("rotary", "cross")),
    ),
    "abacus-shaw": Scheme(
        PositionIds("abacus", OF_TOKENS["abacus"]), (Part("learned"), part("shaw", **SHORT))
    ),
    "everywhere": Scheme(
        PositionIds("shifted", NEAR),
        (SINUSOIDAL, part("shaw", **SHORT), part("sinusoidal", "cross")),
    ),
    "shape-authors": Scheme(PositionIds("shifted", NEAR | {"authors": True}), (SINUSOIDAL,)),
}
CASES = {
    **{name: scheme for name, scheme in SCHEMES.items() if scheme not in CELLS.values()},
    **CELLS,
    **NUMBERINGS,
    **VARIANTS,
}

# Compilers take seconds for a model, so the default suite puts all kinds, at all their places, into
# a few models, one for each way to number tokens.
ENOUGH = {"randomized": {"max_position": 1000}}  # as many as learned tables have rows


def together() -> Iterator[Scheme]:
    """Deal the cells out to a scheme for each way to number tokens, first those that turn queries,
    which few kinds may stand beside, and to further schemes where they fit into none."""
    counted = (name for name in POSITION_IDS if name not in OF_TOKENS)
    schemes = deque(Scheme(PositionIds(name, ENOUGH.get(name, {}))) for name in counted)
    turning = [KINDS[cell.parts[0].kind].build.position_free_heads for cell in CELLS.values()]
    for _, cell in sorted(zip(turning, CELLS.values(), strict=True), key=itemgetter(0)):
        if not any(stand_together(scheme, cell) for scheme in schemes):
            schemes.appendleft(Scheme())
        at = next(n for n, scheme in enumerate(schemes) if stand_together(scheme, cell))
        schemes[at] = replace(schemes[at], parts=schemes[at].parts + cell.parts)
        schemes.rotate(-1)
    yield from schemes


def stand_together(*schemes: Scheme) -> bool:
    """Return whether no part of one scheme is refused beside those of another."""
    parts = tuple(part for scheme in schemes for part in scheme.parts)
    try:
        place(Scheme(parts=parts), Stack("decoder", 8, 2, num_layers=1))
    except ShapeshiftError:
        return False
    return True


TOGETHER = {
    f"together:{n}:{scheme.position_ids.name}": scheme for n, scheme in enumerate(together())
}


@pytest.fixture(params=CASES.values(), ids=list(CASES))
def scheme(request):
    """A position scheme: each test that asks for it runs over all."""
    return request.param


@pytest.fixture(params=CELLS.values(), ids=list(CELLS))
def cell(request):
    """One registered kind at one of its places, with its default options."""
    return request.param


@pytest.fixture(params=STACKED.values(), ids=list(STACKED))
def stacked(request):
    """A cell and a stack it stands in: the decoder, and the encoder where that is another case."""
    return request.param


COMPILED = [
    *(pytest.param(scheme, id=name) for name, scheme in TOGETHER.items()),
    *(pytest.param(scheme, id=name, marks=pytest.mark.slow) for name, scheme in CASES.items()),
]


@pytest.fixture(params=COMPILED)
def compiled_scheme(request):
    """As `scheme`, for tests that take seconds: few that have all kinds in them, unless `slow`."""
    return request.param


def is_ours(scheme: Scheme) -> bool:
    """Return whether a scheme has no kind of one's own."""
    modules = {KINDS[part.kind].build.__module__ for part in scheme.parts}
    return all(module.startswith("shapeshift.") for module in modules)


@pytest.fixture(
    params=[
        *(pytest.param(scheme, id=name) for name, scheme in (TOGETHER | VARIANTS).items()),
        *(
            pytest.param(scheme, id=name, marks=[pytest.mark.slow] if is_ours(scheme) else [])
            for name, scheme in CASES.items()
            if name not in VARIANTS
        ),
    ]
)
def varied_scheme(request):
    """As `scheme`, for tests of what each part does by itself: the variants, and our kinds together
    in few models, unless `slow`."""
    return request.param


@pytest.fixture
def make_model():
    """Return a function that builds a tiny model with random weights in evaluation mode."""

    def make(scheme, *, seed=0, vocabulary=VOCABULARY, **settings):
        torch.manual_seed(seed)
        shape = {"dim": 16, "num_heads": 2, "ff_dim": 24, **settings}
        model = build(ModelConfig(size="tiny", **shape), scheme, vocabulary, vocabulary)
        for name, parameter in model.named_parameters():
            if name.endswith("bias"):  # zero when fresh, which would hide a bias that is lost
                torch.nn.init.normal_(parameter, std=0.2)
        return model.double().eval()

    return make


@pytest.fixture
def logits():
    """Return a function that makes all logits `(B, T, V)` in one forward pass."""

    def compute(model, source, target_input, offset=None):
        memory = model.encode(source, offset=offset)
        return model.project(model.decode(target_input, memory, offset=offset))

    return compute


@pytest.fixture
def sentences():
    """Source `(3, 9)` of 8, 5 and 1 subwords, and decoder inputs `(3, 16)`: twice as long."""
    generator = torch.Generator().manual_seed(1)
    source = torch.randint(4, VOCABULARY, (3, 9), generator=generator)
    for row, length in enumerate((8, 5, 1)):
        source[row, length] = 3
        source[row, length + 1 :] = 0
    target_input = torch.randint(4, VOCABULARY, (3, 16), generator=generator)
    target_input[:, 0] = 2
    return source, target_input


READS = {"_local_scalar_dense", "item", "is_nonzero", "nonzero", "equal"}
"""Operators by which the host reads what a device has computed."""


class Watch(TorchDispatchMode):
    """Calls `see(operator, (arguments, keywords), result)` for each operator of PyTorch in its
    context."""

    def __init__(self, see: Callable[[Any, Any, Any], object]):
        super().__init__()
        self.see = see

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        self.see(func, (args, kwargs or {}), out)
        return out


def close(got: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(got, expected, rtol=0, atol=1e-10)
