"""Which way attention goes on a GPU, without one."""

import sys
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from shapeshift import kernels
from shapeshift.attention import attend
from shapeshift.attention.backends import triton
from shapeshift.model.transformer import padding_mask
from shapeshift.positions import T5, Chain, Representation, Shaw, Skew, get
from shapeshift.training.precision import tuned

B, H, T, E = 2, 3, 5, 16
SIZES = {"num_heads": H, "head_dim": E}


@pytest.fixture
def kernel(monkeypatch):
    """Let the CPU be a GPU whose kernel of tables returns the queries; return its calls."""
    calls: list[Any] = []

    def attend_by_tables(heads, tables, *rest, causal):
        calls.append(tables)
        query: Tensor = heads[0]
        return query

    stub = SimpleNamespace(attend_by_tables=attend_by_tables)
    monkeypatch.setitem(sys.modules, "shapeshift.attention.gpu", stub)  # type: ignore[misc]
    monkeypatch.setattr(kernels, "compiles_for", lambda device: True)
    return calls


def run(position: Representation, **options: Any) -> None:
    dtype = options.pop("dtype", torch.float32)
    q, k, v = torch.randn(3, B, H, options.pop("length", T), E, dtype=dtype)
    pos = torch.arange(q.shape[2])[None]
    attend(q, k, v, options.pop("mask", None), position.to(dtype), pos, pos, **options)


@pytest.mark.parametrize("causal", [False, True], ids=["all", "causal"])
def test_tables_have_a_kernel(causal, kernel, ran):
    padding = padding_mask(torch.tensor([[5, 6, 7, 8, 3], [5, 3, 0, 0, 0]]), torch.float32)
    served = (
        Shaw(**SIZES),
        Shaw(add_to="values", **SIZES),
        Skew(**SIZES),
        T5(dim=H * E, num_heads=H),
        Chain(Shaw(add_to="keys", **SIZES), Shaw(add_to="values", **SIZES)),
    )
    for position in served:
        for mask in (None, padding):
            run(position, mask=mask, causal=causal)
    assert len(kernel) == 2 * len(served)
    assert ran == ["triton"] * len(kernel)
    by_head, nothing = kernel[-3]
    assert by_head.vectors.shape == (H, 2 * 128 + 1)
    assert nothing is None
    keys, values = kernel[-1]
    assert keys.low == values.low == -16
    assert keys.vectors.shape == values.vectors.shape == (1, 33, E)


def test_what_the_kernel_cannot_goes_elsewhere(kernel, ran):
    class Biased(Shaw):
        def bias(self, pos_q, pos_k, *, dtype):
            return torch.zeros(1, 1, 1, 1, dtype=dtype)

    for position in (
        Representation(),
        Biased(**SIZES),
        Skew(max_distance=triton.MAX_ROWS, **SIZES),
        get("alibi", num_heads=H),
        Chain(Shaw(**SIZES), get("alibi", num_heads=H)),
        Chain(Shaw(add_to="keys", **SIZES), Shaw(add_to="values", max_distance=3, **SIZES)),
    ):
        run(position)
    position = Shaw(**SIZES)
    run(position, dropout_p=0.5)
    run(position, dtype=torch.float64)
    run(position, length=1)
    run(position, mask=torch.zeros(T, T))
    assert not kernel
    assert len(ran) == 10
    assert "triton" not in ran
    run(position)
    assert ran[-1] == "triton"


def test_transforms_of_functions_take_other_steps(kernel):
    position, pos = Shaw(**SIZES), torch.arange(T)[None]
    heads = torch.randn(3, 2, B, H, T, E)
    both = torch.func.vmap(lambda q, k, v: attend(q, k, v, None, position, pos, pos))(*heads)
    assert not kernel
    assert both.shape == heads.shape[1:]
    attend(*heads[:, 0], None, position, pos, pos)
    assert kernel


def test_no_plan_is_made_for_each_shape():
    assert torch.backends.cuda.cudnn_sdp_enabled()
    with tuned(torch.device("cuda")):
        assert not torch.backends.cuda.cudnn_sdp_enabled()
        assert torch.backends.cuda.flash_sdp_enabled()
    assert torch.backends.cuda.cudnn_sdp_enabled()


@pytest.mark.parametrize(
    ("capability", "serves"), [((9, 0), True), ((8, 0), True), ((7, 5), False)]
)
def test_older_gpus_have_no_kernel(capability, serves, monkeypatch):
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: capability)
    monkeypatch.setattr(kernels, "HAS_TRITON", True)
    assert kernels.compiles_for("cuda") == serves
    assert not kernels.compiles_for("cpu")
    monkeypatch.setattr(kernels, "HAS_TRITON", False)
    assert not kernels.compiles_for("cuda")


@pytest.mark.long
def test_the_choice_does_not_split_a_compiled_graph(monkeypatch):
    monkeypatch.setattr(kernels, "HAS_TRITON", True)

    def choose(x):
        return x + int(kernels.compiles_for("cuda"))

    compiled = torch.compile(choose, fullgraph=True, backend="eager")
    assert compiled(torch.zeros(1)) == 1
