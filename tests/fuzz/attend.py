"""`shapeshift.attention.attend` with random kinds, sizes, dtypes, memory layouts, masks and
positions: output, probabilities, gradients and second derivatives."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import ExitStack
from copy import deepcopy
from typing import Any

import torch
from torch import Tensor
from torch.nn.modules.module import register_module_forward_hook

from shapeshift.attention import attend, recording
from shapeshift.positions import Encoding, Representation

from . import definition, kinds
from .backends import only
from .compare import Case, Outcome, Results, WrongResultError, gradients
from .definition import UNIT, Arithmetic
from .kinds import ROWS, InvalidCaseError, Mixing
from .layouts import LAYOUTS, PLACES

SIMPLEST: Case = {
    **dict.fromkeys(("B", "H", "Q", "K", "threads"), 1),
    **dict.fromkeys(("by_sentence", "blind", "expanded_mask", "causal", "second"), False),
    **dict.fromkeys(("no_grad", "recording", "mixed"), False),
    "E": 2,
    "dtype": "float32",
    "kinds": [["none", {}]],
    "layouts": ["plain", "plain", "plain"],
    "scale": 1.0,
    "positions": "arange",
    "pos_dtype": "int64",
    "mask": "none",
    "mask_shape": "BHQK",
    "mask_dtype": "float32",
    "wants": "",
    "cotangent": "plain",
    "dropout": 0.0,
    "touched": "none",
    "without": [],
    "block": 0,
}
"""What each option is when nothing happens."""

DTYPES = {
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float64": torch.float64,
    "autocast": torch.float32,
}

SHAPES = ("K", "QK", "11QK", "B11K", "BHQK", "1HQK", "B1QK", "BHQ1", "1111", "1H1K")
"""Of masks: those without Q forbid keys to all queries."""


def draw(rng: random.Random) -> Case:
    """Return a case; what is not in it is as in `SIMPLEST`."""
    long = rng.random() < 0.03
    near = (1, 1, 2, 3, 5, 7, 8, 9, 15, 16, 17, 24, 31, 32, 33, 40, 63, 64, 65, 70)
    K = rng.choice((500, 511, 512, 513, 530, 700)) if long else rng.choice(near)
    Q = rng.choice((K, K, K, 1, 2, rng.choice(near)))
    case: Case = {
        "B": rng.choice((1, 1, 2, 3)),
        "H": rng.choice((1, 2, 3, 4)),
        "Q": Q,
        "K": K,
        "E": rng.choice((1, 2, 3, 4, 6, 8, 8, 10, 12, 16, 16, 20, 24, 32, 40, 64, 64, 66, 80)),
        "dtype": rng.choices(list(DTYPES), (4, 3, 1, 2))[0],
        "kinds": kinds.draw(rng),
        "layouts": [rng.choice(("plain", "rows", rng.choice(list(LAYOUTS)))) for _ in range(3)],
        "scale": rng.choice((1.0, 1.0, 1.0, 0.2, 2.0)),
        "positions": rng.choice(("arange", "arange", *PLACES)),
        "pos_dtype": rng.choice(("int64", "int64", "int32")),
        "by_sentence": rng.random() < 0.3,
        "causal": rng.random() < 0.4,
        "wants": "".join(x for x in "qkvpm" if rng.random() < 0.8) if rng.random() < 0.7 else "",
        "cotangent": rng.choice(("plain", "plain", "sum", "rows")),
        "no_grad": rng.random() < 0.1,
        "recording": rng.random() < 0.05,
        "threads": rng.choice((2, 3, 4)) if rng.random() < 0.05 else 1,
    }
    if rng.random() < 0.15:
        case["touched"] = rng.choice([*TOUCHES])
    if case["dtype"] == "autocast":
        case["mixed"] = rng.random() < 0.2
    if rng.random() < 0.15:
        case["without"] = rng.choice((["cpu"], ["cpu", "sdpa"], ["sdpa"]))
        case["block"] = rng.choice((0, 1, 50, 500))
    if long:
        case |= {"B": 1, "H": rng.choice((1, 2))}
    if rng.random() < 0.5:
        case |= {
            "mask": rng.choice(("bool", "bool", "float", "inf", "lowest")),
            "mask_shape": rng.choice(SHAPES),
            "mask_dtype": rng.choice(("same", "same", "float32")),
            "blind": rng.random() < 0.2,
            "expanded_mask": rng.random() < 0.2,
        }
    if case["dtype"] in ("float32", "float64") and case["wants"] and rng.random() < 0.1:
        case["second"] = True
    if case["E"] >= K and rng.random() < 0.1:
        case["dropout"] = rng.choice((0.1, 0.5))
    if rng.random() < 0.08:
        case |= {"kinds": [kinds.draw_with_axes(rng)], "E": 24}
    names = {name for name, _ in case["kinds"]}
    if names & {"rotary", "xpos", "sinusoidal"}:
        case["E"] = max(4, case["E"] // 2 * 2)
    if "xpos" in names:
        case["causal"] = True
    if "tupe" in names and case["H"] * case["E"] > 160:
        case["E"] = 160 // case["H"]
    return case


def _doubled(module: Any, arguments: tuple[Any, ...], out: Any) -> Any:
    is_bias = arguments[0] in ("bias", "query_bias") and out is not None
    return 2 * out if is_bias else None


TOUCHES: dict[str, Callable[[Representation], Any]] = {
    "hook": lambda position: position.register_forward_hook(lambda *_: None),
    "doubled": lambda position: position.register_forward_hook(_doubled),
    "hook on all modules": lambda _: register_module_forward_hook(lambda *_: None),
    "own method": lambda position: setattr(position, "bias", position.bias),
}
"""What somebody else did to a representation: the hooks alone then compute it."""


class Setup:
    """The tensors of a case."""

    def __init__(self, case: Case):
        self.case = case = SIMPLEST | case
        B, H, Q, K, E = (case[x] for x in "BHQKE")
        self.dtype, self.is_autocast = DTYPES[case["dtype"]], case["dtype"] == "autocast"
        self.unit = UNIT[torch.bfloat16 if self.is_autocast else self.dtype]
        sizes = {"num_heads": H, "head_dim": E, "dim": H * E}
        built = kinds.build(case["kinds"], causal=case["causal"], seed=case["seed"], **sizes)
        self.position = built.to(self.dtype)
        rng = torch.Generator().manual_seed(case["seed"])
        self.bases, self.views = [], []
        for layout, T in zip(case["layouts"], (Q, K, K), strict=True):
            shape, view = LAYOUTS[layout](B, H, T, E)
            base = torch.randn(shape, generator=rng) * case["scale"] ** 0.5
            is_mixed = case["mixed"] and self.is_autocast and len(self.bases) == 2
            self.bases.append(base.to(torch.bfloat16 if is_mixed else self.dtype))
            self.views.append(view)
        self.pos = self._positions(rng)
        self.mask, self.is_blind = None, torch.zeros(B, H, Q, 1, dtype=torch.bool)
        if case["mask"] != "none":
            self.mask = self._mask(rng)
        if case["dropout"] and E < K:
            raise InvalidCaseError("dropout needs a channel for each key")
        self.cotangent = torch.randn(B, H, Q, E, generator=rng).to(self.dtype)
        if case["cotangent"] == "sum":
            self.cotangent = self.cotangent[..., :1, :1].expand(B, H, Q, E)
        elif case["cotangent"] == "rows":
            self.cotangent = self.cotangent.transpose(1, 2).contiguous().transpose(1, 2)
        wanted = self.leaves(False)[2].values()
        self.second = [torch.randn(x.shape, generator=rng) for x in wanted]

    def _positions(self, rng: torch.Generator) -> tuple[Tensor, Tensor]:
        case = self.case
        B, Q, K = (case[x] for x in "BQK")
        pos = PLACES[case["positions"]](rng, B, Q, K)
        names = {name for name, _ in case["kinds"]}
        if names & {"tupe", "learned", "xpos"}:  # whose positions have a limit
            pos = [x % (ROWS if "xpos" not in names else 1500) for x in pos]
        if case["by_sentence"]:
            pos = [x.expand(B, -1) for x in pos]
        if (num_axes := self.position.num_axes) > 1:
            pos = [torch.stack((x, x // 3, x % 7), dim=-1)[..., :num_axes] for x in pos]
        pos = [x.to(getattr(torch, case["pos_dtype"])) for x in pos]
        same = pos[0].shape == pos[1].shape and torch.equal(*pos)
        return (pos[0], pos[0]) if same else (pos[0], pos[1])

    def _mask(self, rng: torch.Generator) -> Tensor:
        case = self.case
        sizes = {x: case[x] for x in "BHQK"} | {"1": 1}
        shape = [sizes[x] for x in case["mask_shape"]]
        same = case["mask_dtype"] == "same" or self.dtype == torch.float64
        dtype = self.dtype if same else torch.float32
        allowed = torch.rand(shape, generator=rng) > 0.3
        if case["blind"]:
            allowed = allowed & (torch.rand((*shape[:-1], 1), generator=rng) > 0.3)
        if case["mask"] == "bool":
            mask = allowed
        elif case["mask"] == "float":
            mask = torch.randn(shape, generator=rng).to(dtype)
        else:
            number = float("-inf") if case["mask"] == "inf" else torch.finfo(dtype).min
            mask = torch.randn(shape, generator=rng).to(dtype).masked_fill(~allowed, number)
        if case["expanded_mask"]:
            mask = mask.expand(*(sizes[x] for x in "BHQK"))
        seen = mask if mask.dtype == torch.bool else mask != float("-inf")
        seen = seen.expand(*(sizes[x] for x in "BHQK"))
        if case["causal"]:
            seen = seen & torch.ones(case["Q"], case["K"], dtype=torch.bool).tril(
                case["K"] - case["Q"]
            )
        self.is_blind = ~seen.any(-1, keepdim=True)
        return mask

    def leaves(self, exact: bool) -> tuple[Representation, list[Tensor | None], Results]:
        """Return copies of the representation and of `[q, k, v, mask]`'s tensors, and what of all
        that wants gradients, by name."""
        wants = self.case["wants"]

        def copied(x: Tensor, letter: str) -> Tensor:
            x = x.clone(memory_format=torch.preserve_format) if not exact else x
            x = x.double() if exact and x.is_floating_point() else x
            return x.detach().requires_grad_(letter in wants and x.is_floating_point())

        position = deepcopy(self.position)
        position = position.double() if exact else position
        position.requires_grad_("p" in wants)
        tensors = [copied(x, letter) for x, letter in zip(self.bases, "qkv", strict=True)]
        mask = None
        if self.mask is not None:
            # An expanded one stays expanded: `detach` keeps strides, `clone` does not.
            mask = self.mask.double() if exact and self.mask.is_floating_point() else self.mask
            mask = mask.detach().requires_grad_("m" in wants and mask.is_floating_point())
        named = {"q": tensors[0], "k": tensors[1], "v": tensors[2], "mask": mask}
        named |= dict(position.named_parameters())
        wanted = {n: x for n, x in named.items() if x is not None and x.requires_grad}
        return position, [*tensors, mask], wanted

    def named(self, out: Tensor, wanted: Results) -> Results:
        """Return the output, gradients and second derivatives."""
        found = {"output": out}
        if not wanted or not out.requires_grad:
            return found
        second = self.case["second"]
        grads = gradients(out, wanted, self.cotangent.to(out.dtype), create_graph=second)
        found |= grads
        terms = [
            (g * w.to(g.dtype)).sum()
            for g, w in zip(grads.values(), self.second, strict=True)
            if second and g.requires_grad
        ]
        if terms:
            again = gradients(sum(terms[1:], terms[0]), wanted)
            found |= {name.replace("gradient", "second derivative"): g for name, g in again.items()}
        return found

    def call(self, kept: list[Tensor] | None = None) -> Results:
        """Return what the public call gives, in the users' dtype."""
        case = self.case
        position, (*bases, mask), wanted = self.leaves(False)
        q, k, v = (view(x) for view, x in zip(self.views, bases, strict=True))
        with ExitStack() as stack:
            stack.enter_context(only(case["without"], case["block"]))
            if case["touched"] != "none":
                handle = TOUCHES[case["touched"]](position)
                stack.callback(lambda: handle and handle.remove())
            stack.enter_context(torch.set_grad_enabled(not case["no_grad"]))
            stack.enter_context(torch.autocast("cpu", torch.bfloat16, enabled=self.is_autocast))
            record = stack.enter_context(recording()) if case["recording"] else None
            q, k = position("rotate", q, k, *self.pos)

            def run(v: Tensor) -> Tensor:
                torch.manual_seed(case["seed"])  # of dropout
                p = case["dropout"]
                return attend(q, k, v, mask, position, *self.pos, p, causal=case["causal"])

            if case["dropout"]:
                assert kept is not None
                # Where no probability was dropped; by the backend that serves for `v`.
                unit = torch.eye(case["K"], case["E"], dtype=v.dtype).expand_as(v)
                both = [
                    run(x.clone().requires_grad_(v.requires_grad)).detach()
                    for x in (unit, torch.zeros_like(v))
                ]
                kept.append((both[0] - both[1])[..., : case["K"]])
                if record is not None:
                    record.clear()
            out = run(v)
        if out.requires_grad != bool(wanted and not case["no_grad"] and self._reaches(wanted)):
            raise WrongResultError("requires_grad", f"{out.requires_grad}")
        if out[self.is_blind.expand_as(out)].any():
            raise WrongResultError("output", "a query that may see no key has no zeros")
        with only(case["without"], case["block"]):  # some compute again in the backward pass
            found = self.named(out, wanted if not case["no_grad"] else {})
        if record is not None:
            if len(record) != 1:
                raise WrongResultError("recording", f"{len(record)} tensors of probabilities")
            found["probabilities"] = record[0]
        return found

    def _reaches(self, wanted: Results) -> bool:
        """Whether what wants gradients has an influence on the output."""
        acting = [x for x in self.position.kinds() if not isinstance(x, Encoding | Mixing)]
        return not wanted.keys().isdisjoint({"q", "k", "v", "mask"}) or any(
            True for kind in acting for _ in kind.parameters()
        )

    def reference(self, compute: Arithmetic, dropped: Tensor | None) -> Results:
        """Return what the definition gives."""
        case = self.case
        position, (*bases, mask), wanted = self.leaves(True)
        q, k, v = (view(x) for view, x in zip(self.views, bases, strict=True))
        if mask is not None and mask.is_floating_point():
            # A number beyond the range of the scores' dtype is clipped: it has no derivative.
            limit = torch.finfo(torch.bfloat16 if self.unit > 1e-4 else self.dtype).max
            mask = torch.where(mask.abs() > limit, mask.detach(), mask)
        with torch.set_grad_enabled(not case["no_grad"]):
            q, k = definition.rotate(position, q, k, *self.pos, compute)
            out, probs = definition.attend(
                q, k, v, mask, position, *self.pos,
                causal=case["causal"], compute=compute, kept=dropped,
                times=2.0 if case["touched"] == "doubled" else 1.0,
            )  # fmt: skip
        found = self.named(out, wanted if not case["no_grad"] else {})
        return found | ({"probabilities": probs.detach()} if case["recording"] else {})


def run(case: Case) -> Outcome:
    """Compute a case both ways.

    Raises:
        InvalidCaseError: if the library rightly refuses it.
        WrongResultError: if a result contradicts the definition without any tolerance.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(case.get("threads", 1))
    try:
        setup = Setup(case)
        kept: list[Tensor] = []
        found = setup.call(kept)
    finally:
        torch.set_num_threads(threads)
    dropped = None
    if kept:
        p = setup.case["dropout"]
        dropped = (kept[0] != 0).double() / (1 - round(p * 2**16) / 2**16)
    return compared(setup, found, dropped)


def compared(setup: Setup, found: Results, dropped: Tensor | None) -> Outcome:
    """Return what was found beside what the definition gives; `dropped` is what dropout multiplies
    the probabilities by."""
    compute = Arithmetic(setup.unit)
    exact = setup.reference(compute, dropped)

    def rounded(seed: int) -> Results:
        return setup.reference(Arithmetic(setup.unit, seed), dropped)

    skipped: set[str] = set()
    if compute.is_coarse:
        skipped = {*exact}
    elif compute.has_kink and setup.unit > 1e-4 and setup.case["Q"] * setup.case["K"] < 100:
        skipped = {x for x in exact if "inner" in x or "log_" in x}
    B, H, Q, K, E = (setup.case[x] for x in "BHQKE")
    # A number of a table or of a mask may be that of all pairs.
    longest = 1 if setup.unit == UNIT[torch.bfloat16] else max(B * Q * K, H * E)
    if setup.dtype == torch.bfloat16 and "windows" in setup.case["layouts"]:
        longest = E  # PyTorch adds the gradients of numbers that overlap one by one
    if setup.dtype == torch.bfloat16 and setup.case["block"]:
        longest = max(longest, B * Q)  # and those of a table from each block
    return Outcome(found, exact, rounded, frozenset(skipped), longest)
