"""Random calls with arguments that now and then do not fit: no call ends in a signal, bad ones
raise an error that a caller expects, and what is computed is what float64, which C never computes,
gives. `tests/fuzz` compares calls that fit, more strictly.

    python tests/unit/test_fuzz_kernels.py FIRST COUNT

runs COUNT calls from seed FIRST on; after a signal, the last line is the seed.
"""

from __future__ import annotations

import contextlib
import os
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from copy import deepcopy
from typing import Any

import pytest
import torch
from torch import Tensor

from shapeshift import kernels
from shapeshift.attention import attend
from shapeshift.kernels.decoding import best_continuations
from shapeshift.model import ModelConfig, build
from shapeshift.model.inference import PanelLinear
from shapeshift.model.loss import linear_cross_entropy
from shapeshift.positions import KINDS, get

ALLOWED = ValueError, IndexError, TypeError, RuntimeError, MemoryError  # ShapeshiftError: the first
NEAR = {torch.float64: 2e-4, torch.float32: 2e-4, torch.float16: 0.02, torch.bfloat16: 0.1}
Results = list[Tensor]
Change = Callable[[Tensor], Tensor]

OTHERS: Sequence[Change] = (
    lambda x: x.to("meta"),
    lambda x: x.double(),
    lambda x: x.to(torch.float16),
    lambda x: x.long(),
    lambda x: x[..., :0],
    lambda x: x[..., 1:],
    lambda x: x[:0],
    lambda x: x[None],
    lambda x: x.to_sparse(),
    lambda x: x.bool(),
)
INDICES: Sequence[Change] = (
    *(lambda x, n=n: x + n for n in (1, -1, -9, 20, 10**6)),
    *(lambda x, dtype=dtype: x.to(dtype) for dtype in (torch.int32, torch.int16, torch.float32)),
    lambda x: x > 0,
    lambda x: x[None],
    lambda x: x[:-1],
    lambda x: x[:0],
    lambda x: torch.cat((x, x)),
    lambda x: x.to("meta"),
)


class Draw(random.Random):
    def one(self, *choices: Any) -> Any:
        """Return the first choice mostly."""
        return choices[0] if self.random() < 0.8 else self.choice(choices)

    def spoiled(self, x: Tensor, often: float = 0.03, changes: Sequence[Change] = OTHERS) -> Tensor:
        """Return `x`, or now and then what does not fit."""
        return self.choice(changes)(x) if self.random() < often else x


def doubled(x: Any) -> Any:
    return x.double() if isinstance(x, Tensor) and x.is_floating_point() else x


def attention(draw: Draw) -> Callable[[bool], Results]:
    B, H = draw.randint(1, 3), draw.randint(1, 3)
    Q, K = (draw.choice((0, 1, 2, 5, 16, 33, 70)) for _ in range(2))
    K, E = draw.one(Q, K), draw.choice((2, 8, 16, 24, 64))
    dtype = draw.one(torch.float32, torch.bfloat16, torch.float64)
    heads = [draw.spoiled(torch.randn(B, H, n, E).to(dtype)) for n in (Q, K, K)]
    sizes = {"dim": H * E, "num_heads": H, "head_dim": E}
    position = get(draw.choice(sorted(KINDS)), causal=True, **sizes).to(dtype)
    if draw.random() < 0.03:
        position.to(draw.choice((torch.float64, torch.float16, "meta")))
    pos = [draw.spoiled(torch.arange(n)[None] + K - n, 0.02, (*OTHERS, *INDICES)) for n in (Q, K)]
    mask = None
    if draw.random() < 0.5:
        mask = torch.randn(draw.one(1, B), draw.one(1, H), draw.one(1, Q), K)
        mask = draw.spoiled(mask > -1 if draw.random() < 0.5 else mask)
    causal, trains = draw.random() < 0.3, draw.random() < 0.5

    def call(in_double: bool) -> Results:
        own = deepcopy(position).double() if in_double else position
        leaves = [doubled(x) if in_double else x for x in heads]
        leaves = [x.detach().requires_grad_(trains and x.is_floating_point()) for x in leaves]
        with torch.set_grad_enabled(trains):
            out = attend(*leaves, mask, own, *pos, causal=causal)
            if not trains or not out.requires_grad:
                return [out]
            wanted = [x for x in (*leaves, *own.parameters()) if x.requires_grad]
            grads = torch.autograd.grad(out.double().sin().sum(), wanted, allow_unused=True)
        return [out, *(torch.zeros(()) if x is None else x for x in grads)]

    return call


def decoding(draw: Draw) -> Callable[[bool], Results]:
    torch.manual_seed(draw.randrange(99))
    scheme = draw.choice(("ape", "rpe", "rope", "t5", "alibi", "skew", "tupe"))
    sizes = {"dim": 32, "num_heads": 2, "ff_dim": 32, "encoder_layers": 1, "decoder_layers": 1}
    model = build(ModelConfig(**sizes), scheme, 20, 20)
    model = model.to(draw.one(torch.float32, torch.bfloat16)).eval()
    B, beam = draw.randint(1, 2), draw.randint(1, 3)
    source = torch.randint(4, 20, (B, draw.randint(1, 6)))
    steps = []
    for _ in range(draw.randint(1, 5)):
        rows = torch.arange(B * beam)
        rows = rows - rows % beam + torch.randint(0, beam, (B * beam,))
        tokens = draw.spoiled(torch.randint(4, 20, (B * beam,)), 0.03, INDICES)
        steps.append((tokens, draw.spoiled(rows, 0.06, INDICES)))

    def call(in_double: bool) -> Results:
        own = deepcopy(model).double() if in_double else model
        results = []
        with torch.no_grad():
            state = own.start(source, beam=beam)
            for tokens, rows in steps:
                results.append(state.step(tokens))
                state.reorder(rows)
            results.append(state.step(torch.full((B * beam,), 5)))
        return results

    return call


def losses(draw: Draw) -> Callable[[bool], Results]:
    N, V, D = draw.randint(1, 9), draw.choice((1, 5, 16, 33)), draw.choice((1, 8))
    hidden, weight = (draw.spoiled(torch.randn(n, D)) for n in (N, V))
    targets = draw.spoiled(torch.randint(0, V, (N,)), 0.3, INDICES)

    def call(in_double: bool) -> Results:
        x, w = (doubled(y) if in_double else y for y in (hidden, weight))
        leaves = [y.detach().requires_grad_(y.is_floating_point()) for y in (x, w)]
        loss, nll = linear_cross_entropy(*leaves, targets, 0.1)
        return [loss, nll, *torch.autograd.grad(loss, leaves)]

    return call


def products(draw: Draw) -> Callable[[bool], Results]:
    """Modules and functions that only the kernels in C have."""
    M, N, K = (draw.choice((0, 1, 5, 32, 33)) for _ in range(3))
    x, weight, bias = torch.randn(M, K + 1)[:, 1:], torch.randn(N, K), torch.randn(N)
    x = draw.spoiled(x, 0.2)
    A, B, V = draw.randint(1, 3), draw.randint(1, 3), draw.choice((1, 5, 70))
    sums, forced = draw.spoiled(torch.randn(A, B)), torch.full((A,), draw.one(-1, 0, V, -2, 10**9))
    forced = draw.spoiled(forced, 0.2, INDICES)
    logits, count = draw.spoiled(torch.randn(A * B, V)), draw.one(1, 0, -1, 10**4)

    def call(in_double: bool) -> Results:
        if in_double:
            return [x.double() @ weight.double().T + bias.double(), logits.double().log_softmax(-1)]
        if not kernels.is_available(torch.float32):
            raise MemoryError
        made = PanelLinear(weight, bias)(x)
        best_continuations(logits, sums, forced, count, (0, 1))
        return [made, logits.log_softmax(-1)]

    return call


WAYS = (attention, attention, attention, decoding, losses, products)


def attempt(seed: int) -> str:
    """Make one call, now and then with another default device; return how it ended."""
    draw = Draw(seed)
    torch.manual_seed(seed)
    way = draw.choice(WAYS)
    other = draw.random() < 0.05
    try:
        call = way(draw)
        with torch.device("meta") if other else contextlib.nullcontext():
            found = call(False)
    except ALLOWED as error:
        return f"{way.__name__} raises {type(error).__name__}"
    expected = call(True)
    near = max(NEAR[x.dtype] for x in found)
    for got, wanted in zip(found, expected, strict=True):
        if got.device.type == "meta" or wanted.device.type == "meta":
            continue
        largest = wanted.abs().nan_to_num().max().item() if wanted.numel() else 0.0
        seen = wanted.isfinite() & got.isfinite()
        assert got.shape == wanted.shape, f"seed {seed}"
        error = (got.double() - wanted)[seen].abs()
        assert not error.numel() or error.max() <= near * (1 + largest), f"seed {seed}"
    return f"{way.__name__} {'in C' if kernels.is_available(torch.float32) else 'in PyTorch'}"


def test_random_calls() -> None:
    ended = Counter(map(attempt, range(200)))
    assert sum(n for how, n in ended.items() if " in " in how) > 100, ended


@pytest.mark.soak
@pytest.mark.parametrize("name", ["", "none"])
def test_ten_thousand_random_calls(name: str) -> None:
    environment = os.environ | {"OMP_NUM_THREADS": "1", "SHAPESHIFT_KERNELS": name}
    command = [sys.executable, __file__, "1000", "10000"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-300:] + done.stderr[-3000:]


if __name__ == "__main__":
    import faulthandler

    faulthandler.enable()
    start, number = map(int, sys.argv[1:])
    total: Counter[str] = Counter()
    for one in range(start, start + number):
        print(one, end="\r", flush=True)
        total[attempt(one)] += 1
    print(*sorted(total.items()), sep="\n")
