"""The drop-ins for torch.nn: attention against its formula, layers against themselves in float64 by
the definition, and without a position against torch.nn's own in float64."""

from __future__ import annotations

import random
from copy import deepcopy
from typing import Any

import torch
from torch import Tensor, nn

from shapeshift._system.errors import ShapeshiftError
from shapeshift.interop import torch_nn

from . import definition, kinds
from .compare import Case, Outcome, Results, floor_of, gradients
from .definition import UNIT, Arithmetic
from .kinds import InvalidCaseError
from .twin import references

SIMPLEST: Case = {
    **dict.fromkeys(("B", "H", "Q", "K"), 1),
    **dict.fromkeys(("is_self", "batch_first", "batched", "bias", "average"), True),
    **dict.fromkeys(("mask_for_each", "blind", "causal", "hint", "positions"), False),
    **dict.fromkeys(("need_weights", "norm_first", "train", "grad"), False),
    "layer": "attention",
    "E": 4,
    "dtype": "float32",
    "kinds": [["none", {}]],
    "cross_kinds": [["none", {}]],
    "mask": "none",
    "padding": "none",
    "activation": "gelu",
}


def draw(rng: random.Random) -> Case:
    lengths = (1, 2, 3, 5, 8, 9, 16, 17, 31, 33, 40, 64, 65)
    layer = rng.choice(("attention", "attention", "encoder", "decoder"))
    case: Case = {
        "layer": layer,
        "B": rng.choice((1, 2, 3)),
        "H": rng.choice((1, 2, 4)),
        "E": rng.choice((4, 6, 8, 16, 16, 24, 32)),
        "Q": rng.choice(lengths),
        "dtype": rng.choices(("float32", "bfloat16", "autocast"), (3, 1, 2))[0],
        "kinds": kinds.draw(rng, own=0.1),
        "cross_kinds": kinds.draw(rng, 0.1, "cross")
        if layer == "decoder"
        else SIMPLEST["cross_kinds"],
        "is_self": rng.random() < 0.7,
        "batch_first": rng.random() < 0.6,
        "batched": rng.random() < 0.9,
        "blind": layer == "attention" and rng.random() < 0.2,
        "bias": rng.random() < 0.8,
        "mask": rng.choice(("none", "none", "bool", "float", "lowest")),
        "mask_for_each": rng.random() < 0.3,
        "padding": rng.choice(("none", "bool", "bool", "float", "lowest")),
        "causal": rng.random() < 0.4,
        "hint": rng.random() < 0.5,
        "positions": rng.random() < 0.3,
        "need_weights": rng.random() < 0.3,
        "average": rng.random() < 0.5,
        "norm_first": rng.random() < 0.5,
        "activation": rng.choice(("relu", "gelu")),
        "train": rng.random() < 0.5,
        "grad": rng.random() < 0.6,
    }
    case["K"] = rng.choice((case["Q"], rng.choice(lengths)))
    if any(name == "xpos" for name, _ in case["kinds"]):
        case |= {"causal": True, "is_self": True}
    if case["blind"] and case["mask"] == "lowest":  # two such numbers are -inf in float32
        case["padding"] = "bool"
    if case["dtype"] != "float32":  # hidden units near zero would switch, and with them gradients
        case["activation"] = "gelu"
    return case


class Masks:
    """The masks of one attention, `(B, H, Q, K)`, as torch.nn takes them and as they are meant."""

    def __init__(
        self, case: Case, B: int, H: int, Q: int, K: int, dtype: torch.dtype, causal: bool
    ):
        shape = (B * H, Q, K) if case["mask_for_each"] else (Q, K)
        forbidden = torch.rand(shape) < 0.2 if case["mask"] != "none" else torch.zeros(shape).bool()
        if not case["blind"]:
            forbidden[..., 0] = False  # torch.nn returns NaN where all keys are masked
        if causal:
            forbidden = forbidden | torch.ones(Q, K, dtype=torch.bool).triu(1)
        self.mask: Tensor | None = None
        self.is_causal = causal and case["mask"] == "none" and case["hint"]
        kind = case["mask"] if case["mask"] != "none" or not causal else "bool"
        if kind != "none":
            self.mask = self._as(kind, forbidden, dtype, torch.randn(shape))
        self.padding: Tensor | None = None
        if case["padding"] != "none":
            padding = torch.rand(B, K) < 0.3
            padding[:, 0] &= case["blind"]
            self.padding = self._as(case["padding"], padding, dtype, torch.zeros(B, K))
        parts = []
        if self.mask is not None:
            by_head = self.mask.view(B, H, Q, K) if self.mask.ndim == 3 else self.mask
            parts.append(self._added(by_head))
        if self.padding is not None:
            parts.append(self._added(self.padding[:, None, None]))
        self.added = sum(parts[1:], parts[0]).expand(B, H, Q, K) if parts else None
        if self.added is not None:  # two forbidding numbers are one
            self.added = self.added.clamp(min=torch.finfo(torch.float32).min)
            forbids = torch.stack([(x == float("-inf")).expand(B, H, Q, K) for x in parts]).any(0)
            self.added = self.added.masked_fill(forbids, float("-inf"))

    @staticmethod
    def _as(kind: str, forbidden: Tensor, dtype: torch.dtype, numbers: Tensor) -> Tensor:
        if kind == "bool":
            return forbidden
        number = torch.finfo(dtype).min if kind == "lowest" else float("-inf")
        return numbers.to(dtype).masked_fill(forbidden, number)

    @staticmethod
    def _added(mask: Tensor) -> Tensor:
        if mask.dtype != torch.bool:
            return mask.double()
        return torch.zeros(mask.shape, dtype=torch.float64).masked_fill(mask, float("-inf"))


class Setup:
    """The module and the arguments of a case."""

    def __init__(self, case: Case):
        self.case = case = SIMPLEST | case
        torch.manual_seed(case["seed"])
        B, H, E, Q = (case[x] for x in "BHEQ")
        if not case["batched"]:
            B = 1
        self.sizes = B, H, E, Q
        self.is_autocast = case["dtype"] == "autocast"
        self.dtype = torch.bfloat16 if case["dtype"] == "bfloat16" else torch.float32
        self.unit = UNIT[torch.bfloat16 if self.is_autocast else self.dtype]
        self.is_attention = case["layer"] == "attention"
        self.is_self = case["is_self"] if self.is_attention else True
        self.K = K = Q if self.is_attention and self.is_self else case["K"]
        self.module = self._module(H * E, H).to(self.dtype)
        self.module.train(case["train"])
        with torch.no_grad():
            for p in self.module.parameters():
                p += 0.1 * torch.randn_like(p)
        self.x = torch.randn(B, Q, H * E).to(self.dtype)
        self.memory = torch.randn(B, K, H * E).to(self.dtype)
        self.pos: dict[str, Tensor] = {}
        if self.is_attention and (case["positions"] or (Q != K)):
            first = torch.randint(0, 50, (B, 1))
            pos = [torch.arange(n)[None] + first for n in (Q, K)]
            self.pos = {"pos_q": pos[0]} if self.is_self else {"pos_q": pos[0], "pos_k": pos[1]}
        causal = case["causal"] and self.is_self
        own_dtype = torch.float32 if self.is_autocast else self.dtype
        own = Q if self.is_self else K
        self.masks = Masks(case, B, H, Q, own, own_dtype, causal)
        self.cross_masks = Masks(case, B, H, Q, K, own_dtype, False)
        self.cotangent = torch.randn(B, Q, H * E).to(self.dtype)

    def _module(self, dim: int, num_heads: int) -> nn.Module:
        case = self.case
        sizes = {"dim": dim, "num_heads": num_heads, "head_dim": dim // num_heads}
        causal = case["causal"] and self.is_self
        position = kinds.build(case["kinds"], causal=causal, seed=case["seed"], **sizes)
        options = {"bias": case["bias"], "batch_first": case["batch_first"], "dropout": 0.0}
        try:
            if self.is_attention:
                return torch_nn.MultiheadAttention(dim, num_heads, position=position, **options)
            options |= {"norm_first": case["norm_first"], "activation": case["activation"]}
            if case["layer"] == "encoder":
                return torch_nn.TransformerEncoderLayer(
                    dim, num_heads, 2 * dim, position=position, **options
                )
            cross = kinds.build(case["cross_kinds"], causal=False, seed=case["seed"] + 1, **sizes)
            return torch_nn.TransformerDecoderLayer(
                dim, num_heads, 2 * dim, position=position, cross_position=cross, **options
            )
        except ShapeshiftError as error:  # a kind that has no meaning here
            raise InvalidCaseError(str(error)) from error

    def call(self, module: nn.Module, convert: Any, *, hints: bool = True) -> Results:
        """Return output, weights and gradients of a module whose calls are those of torch.nn;
        `convert` is applied to tensors."""
        case = self.case
        x, memory = (convert(y).requires_grad_(case["grad"]) for y in (self.x, self.memory))
        batched = case["batched"]

        def laid(y: Tensor) -> Tensor:
            return y[0] if not batched else y if case["batch_first"] else y.transpose(0, 1)

        def of(masks: Masks) -> tuple[Tensor | None, Tensor | None]:
            found = [
                y if y is None or y.dtype == torch.bool else convert(y)
                for y in (masks.mask, masks.padding)
            ]
            if found[1] is not None and not batched:
                found[1] = found[1][0]
            return found[0], found[1]

        with torch.set_grad_enabled(case["grad"]):
            mask, padding = of(self.masks)
            query, probs = laid(x), None
            if self.is_attention:
                key = query if self.is_self else laid(memory)
                out, probs = module(
                    query, key, key, padding, case["need_weights"], mask, case["average"],
                    self.masks.is_causal and hints, **self.pos,
                )  # fmt: skip
            elif case["layer"] == "encoder":
                out = module(query, mask, padding, is_causal=self.masks.is_causal and hints)
            else:
                out = module(
                    query, laid(memory), mask, of(self.cross_masks)[0], padding,
                    of(self.cross_masks)[1], tgt_is_causal=self.masks.is_causal and hints,
                )  # fmt: skip
        out = out[None] if not batched else out if case["batch_first"] else out.transpose(0, 1)
        if probs is not None and not batched:
            probs = probs[None]
        inputs = {"x": x, "memory": memory} if self._sees_memory() else {"x": x}
        return self._results(out, probs, inputs, dict(module.named_parameters()))

    def _sees_memory(self) -> bool:
        return self.case["layer"] == "decoder" or not self.is_self

    def _results(
        self, out: Tensor, probs: Tensor | None, inputs: Results, parameters: Results
    ) -> Results:
        found = {"output": out.detach()}
        if probs is not None:
            found["weights"] = probs.detach()
        if self.case["grad"]:
            found |= gradients(out, inputs | parameters, self.cotangent.to(out.dtype))
        return found

    def formula(self, compute: Arithmetic) -> Results:
        """Return what Vaswani et al. 2017, section 3.2.2, define for `MultiheadAttention`."""
        case = self.case
        module = deepcopy(self.module).double()
        Q = case["Q"]
        x, memory = (y.double().requires_grad_(case["grad"]) for y in (self.x, self.memory))
        key = x if self.is_self else memory
        pos_q = self.pos.get("pos_q", torch.arange(Q)[None])
        pos_k = self.pos.get("pos_k", pos_q if self.is_self else torch.arange(self.K)[None])
        weights = module.in_proj_weight, module.in_proj_bias, module.out_proj
        with torch.set_grad_enabled(case["grad"]):
            out, probs = definition.multi_head(
                [x, key, key], self.masks.added, module, *weights, pos_q, pos_k, compute
            )
        shown = None
        if case["need_weights"]:
            shown = probs.mean(1) if case["average"] else probs
        inputs = {"x": x, "memory": memory} if self._sees_memory() else {"x": x}
        return self._results(out, shown, inputs, dict(module.named_parameters()))


def run(case: Case) -> Outcome:
    """Compute a case both ways; see `attend.run`."""
    setup = Setup(case)
    with torch.autocast("cpu", torch.bfloat16, enabled=setup.is_autocast):
        found = setup.call(setup.module, lambda x: x.detach().clone())
    B, _, _, Q = setup.sizes
    sums = max(B * Q * max(Q, setup.K), 8 * setup.x.shape[-1])
    longest = 1 if setup.unit == UNIT[torch.bfloat16] else sums
    if setup.is_attention:
        compute = Arithmetic(setup.unit)
        exact = setup.formula(compute)
        skipped = frozenset(exact) if compute.is_coarse else frozenset()

        def rounded(seed: int) -> Results:
            return setup.formula(Arithmetic(setup.unit, seed))

        return Outcome(found, exact, rounded, skipped, longest)
    is_plain = {name for name, _ in setup.case["kinds"] + setup.case["cross_kinds"]} == {"none"}
    exact, rounding = references(
        _theirs(setup) if is_plain else setup.module,
        setup.unit,
        lambda module: setup.call(module, lambda x: x.detach().double()),
    )
    return Outcome(found, exact, rounding, frozenset(), longest, floor=floor_of(exact, setup.unit))


def _theirs(setup: Setup) -> nn.Module:
    """Return torch.nn's layer of the same weights."""
    case, dim = setup.case, setup.x.shape[-1]
    theirs = getattr(nn, f"Transformer{case['layer'].title()}Layer")
    options = {x: case[x] for x in ("bias", "batch_first", "norm_first", "activation")}
    module = theirs(dim, case["H"], 2 * dim, 0.0, **options)
    module.load_state_dict(setup.module.state_dict())
    return module.train()  # whose fast path for inference is another computation
