"""Random calls of what is public and reaches C: no call ends in a signal, bad ones raise an error
that a caller expects, and what is computed is what float64, which C never computes, gives.

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
from collections.abc import Callable
from copy import deepcopy
from typing import Any

import pytest
import torch
from torch import Tensor

from shapeshift import kernels
from shapeshift.attention import attend
from shapeshift.interop.torch_nn import MultiheadAttention
from shapeshift.kernels.decoding import best_continuations
from shapeshift.model import ModelConfig, build
from shapeshift.model.inference import PanelLinear
from shapeshift.model.loss import linear_cross_entropy
from shapeshift.positions import KINDS, get

ALLOWED = (
    ValueError,
    IndexError,
    TypeError,
    RuntimeError,
    MemoryError,
)  # ShapeshiftError is the first
NEAR = {torch.float64: 2e-4, torch.float32: 2e-4, torch.float16: 0.02, torch.bfloat16: 0.1}
Results = list[Tensor]


class Draw(random.Random):
    def one(self, *choices: Any, rest: Any = None) -> Any:
        """Return the first choice mostly."""
        return choices[0] if self.random() < 0.8 else self.choice(choices)

    def tensor(self, *shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
        """Return numbers in any of the ways in which they may lie in memory."""
        how = self.randrange(7)
        if how == 0 and len(shape) > 1:
            x = torch.randn(*shape[:-2], shape[-1], shape[-2]).transpose(-1, -2)
        elif how == 1:
            x = torch.randn(*shape[:-1], 2 * shape[-1])[..., ::2]
        elif how == 2 and shape[0]:
            x = torch.randn(1, *shape[1:]).expand(*shape)
        elif how == 3:
            x = torch.randn(*shape[:-1], 1).expand(*shape)
        elif how == 4:
            x = torch.randn(shape[0] + 1, *shape[1:])[1:]
        else:
            x = torch.randn(*shape)
        return x.to(dtype)

    def spoiled(self, x: Tensor, often: float = 0.03) -> Tensor:
        """Return `x`, or now and then one that does not fit it."""
        if self.random() > often:
            return x
        wrong: list[Callable[[], Tensor]] = [
            lambda: x.to("meta"),
            lambda: x.double(),
            lambda: x.to(torch.float16),
            lambda: x.long(),
            lambda: x[..., :0],
            lambda: x[..., 1:],
            lambda: x[:0],
            lambda: x[None],
            lambda: x.to_sparse(),
            lambda: x.bool(),
        ]
        return self.choice(wrong)()


def doubled(x: Any) -> Any:
    return x.double() if isinstance(x, Tensor) and x.is_floating_point() else x


def kind(draw: Draw, dtype: torch.dtype, **sizes: int) -> Any:
    position = get(draw.choice(sorted(KINDS)), causal=True, **sizes).to(dtype)
    if draw.random() < 0.02:
        position.to("meta")
    return position


def attention(draw: Draw) -> Callable[[bool], Results]:
    B, H = draw.randint(1, 3), draw.randint(1, 3)
    Q, K = (draw.choice((0, 1, 2, 5, 16, 33, 70)) for _ in range(2))
    K = draw.one(Q, K)
    E = draw.choice((2, 8, 16, 24, 64))
    dtype = draw.one(torch.float32, torch.bfloat16, torch.float64)
    heads = [draw.tensor(B, H, n, E, dtype=dtype) for n in (Q, K, K)]
    heads = [draw.spoiled(x) for x in heads]
    position = kind(draw, dtype, dim=H * E, num_heads=H, head_dim=E)
    pos = [torch.arange(n)[None] + K - n for n in (Q, K)]
    if draw.random() < 0.2:
        pos = [x + torch.randint(0, 9, (B, 1)) for x in pos]
    if draw.random() < 0.1:
        pos = [torch.randint(0, 40, (B, n)).sort(1)[0] for n in (Q, K)]
    pos = [draw.spoiled(x, 0.01) for x in pos]
    mask = None
    if draw.random() < 0.5:
        mask = draw.tensor(draw.one(1, B), draw.one(1, H), draw.one(1, Q), K)
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


def layer(draw: Draw) -> Callable[[bool], Results]:
    D, H, B = 32, draw.choice((1, 2, 4)), draw.randint(1, 3)
    Q, K = draw.choice((1, 2, 9, 40)), draw.choice((1, 7, 40))
    dtype = draw.one(torch.float32, torch.bfloat16)
    module = MultiheadAttention(
        D, H, batch_first=True, position=kind(draw, dtype, dim=D, num_heads=H, head_dim=D // H)
    ).to(dtype)
    if draw.random() < 0.03:
        module.position.to(draw.choice((torch.float64, torch.float16, "meta")))
    query, key = (draw.spoiled(draw.tensor(B, n, D, dtype=dtype)) for n in (Q, draw.one(Q, K)))
    padding = None
    if draw.random() < 0.4:
        padding = torch.zeros(B, key.shape[1]).bool()
        padding[:, draw.randint(1, 9) :] = True
        padding = draw.spoiled(padding)
    weights = draw.random() < 0.3

    def call(in_double: bool) -> Results:
        own, x, y = module.eval(), query, key
        if in_double:
            own, x, y = deepcopy(module).double().eval(), doubled(x), doubled(y)
        with torch.no_grad():
            out, probs = own(x, y, y, key_padding_mask=padding, need_weights=weights)
        return [out] if probs is None else [out, probs]

    return call


@contextlib.contextmanager
def fewer(draw: Draw):
    """Now and then with another default device."""
    with torch.device("meta") if draw.random() < 0.05 else contextlib.nullcontext():
        yield


def decoding(draw: Draw) -> Callable[[bool], Results]:
    torch.manual_seed(draw.randrange(99))
    scheme = draw.choice(("ape", "rpe", "rope", "t5", "alibi", "skew", "tupe"))
    model = build(
        ModelConfig(dim=32, num_heads=2, ff_dim=32, encoder_layers=1, decoder_layers=1),
        scheme,
        20,
        20,
    )
    model = model.to(draw.one(torch.float32, torch.bfloat16)).eval()
    B, beam = draw.randint(1, 2), draw.randint(1, 3)
    source = torch.randint(4, 20, (B, draw.randint(1, 6)))
    steps = []
    for _ in range(draw.randint(1, 5)):
        rows = torch.arange(B * beam)
        rows = rows - rows % beam + torch.randint(0, beam, (B * beam,))
        if draw.random() < 0.06:
            rows = draw.choice(
                (
                    rows + 1,
                    rows - 1,
                    rows * 10**6,
                    rows.float(),
                    rows > 0,
                    rows[None],
                    rows.int(),
                    rows[:1],
                    rows.to("meta"),
                    -rows,
                    rows[:0],
                    rows.short(),
                )
            )
        tokens = torch.randint(4, 20, (B * beam,))
        if draw.random() < 0.03:
            tokens = draw.choice(
                (
                    tokens + 20,
                    tokens - 9,
                    tokens[:-1],
                    tokens.float(),
                    tokens.int(),
                    tokens.to("meta"),
                )
            )
        steps.append((tokens, rows))

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
    hidden, weight = draw.spoiled(draw.tensor(N, D)), draw.spoiled(draw.tensor(V, D))
    targets = torch.randint(0, V, (N,))
    if draw.random() < 0.3:
        targets = draw.choice(
            (
                targets.int(),
                targets + 1,
                targets - 1,
                targets[:-1],
                targets.float(),
                targets[None],
                torch.cat((targets, targets)),
                targets.to("meta"),
                targets[::2],
            )
        )

    def call(in_double: bool) -> Results:
        x, w = (doubled(y) if in_double else y for y in (hidden, weight))
        leaves = [y.detach().requires_grad_(y.is_floating_point()) for y in (x, w)]
        loss, nll = linear_cross_entropy(*leaves, targets, 0.1)
        return [loss, nll, *torch.autograd.grad(loss, leaves)]

    return call


def products(draw: Draw) -> Callable[[bool], Results]:
    """Modules and functions that only the kernels in C have."""
    M, N, K = (draw.choice((0, 1, 5, 32, 33)) for _ in range(3))
    x, weight, bias = draw.tensor(M, K + 1)[:, 1:], draw.tensor(N, K), draw.tensor(1, N)[0]
    x = draw.spoiled(x, 0.2)
    A, B, V = draw.randint(1, 3), draw.randint(1, 3), draw.choice((1, 5, 70))
    sums, forced = draw.spoiled(torch.randn(A, B)), torch.full((A,), draw.one(-1, 0, V, -2, 10**9))
    forced = draw.one(forced, forced.int(), forced.to("meta"), forced[:-1])
    logits, count = draw.spoiled(draw.tensor(A * B, V)), draw.one(1, 0, -1, 10**4)

    def call(in_double: bool) -> Results:
        if in_double:
            return [x.double() @ weight.double().T + bias.double(), logits.double().log_softmax(-1)]
        if not kernels.is_available(torch.float32):
            raise MemoryError
        made = PanelLinear(weight, bias)(x)
        best_continuations(logits, sums, forced, count, (0, 1))
        return [made, logits.log_softmax(-1)]

    return call


WAYS = (attention, attention, attention, layer, decoding, losses, products)


def attempt(seed: int) -> str:
    """Make one call; return how it ended."""
    draw = Draw(seed)
    torch.manual_seed(seed)
    way = draw.choice(WAYS)
    try:
        call = way(draw)
        with fewer(draw):
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
        assert not error.numel() or error.max() <= near * (1 + largest), (
            f"seed {seed}: {error.max()}"
        )
    return f"{way.__name__} {'in C' if kernels.is_available(torch.float32) else 'in PyTorch'}"


def many(first: int, count: int) -> Counter[str]:
    return Counter(map(attempt, range(first, first + count)))


def test_random_calls() -> None:
    ended = many(0, 300)
    assert sum(n for how, n in ended.items() if " in " in how) > 150, ended


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments],
        env={**os.environ, "OMP_NUM_THREADS": "1", **environment},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.soak
@pytest.mark.parametrize("name", ["", "none"])
def test_ten_thousand_random_calls(name: str) -> None:
    done = run(__file__, "1000", "10000", SHAPESHIFT_KERNELS=name)
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
