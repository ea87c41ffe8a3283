"""Which device and which type, and what is refused."""

import platform
import subprocess
import sys
import time

import pytest
import torch

from shapeshift._system.errors import ShapeshiftError
from shapeshift.kernels import processor
from shapeshift.training import precision
from shapeshift.training.precision import choose_device, choose_precision

CPU = torch.device("cpu")


@pytest.mark.parametrize(
    ("name", "local_rank", "number", "expected"),
    [
        ("auto", None, 1, "cuda"),
        ("auto", 1, 2, "cuda:1"),
        ("cuda", 0, 2, "cuda:0"),
        ("cuda:1", None, 2, "cuda:1"),
        ("mps", None, 0, "use auto, cpu, cuda or cuda:N"),
        ("cuda:2", None, 2, "no cuda:2 here, PyTorch sees 2 GPUs; use auto or cpu$"),
        ("cuda:0", 1, 2, "there are several processes"),
        ("auto", 2, 2, "no cuda:2 here, .*fewer processes"),
    ],
)
def test_each_process_has_its_device_or_none(name, local_rank, number, expected, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: number > 0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: number)
    if " " not in expected:
        assert str(choose_device(name, local_rank)) == expected
        return
    with pytest.raises(ShapeshiftError, match=expected):
        choose_device(name, local_rank)


@pytest.mark.parametrize(
    ("native", "faster", "expected"),
    [
        (True, True, torch.bfloat16),
        (True, False, torch.float32),
        (False, True, torch.float32),  # PyTorch was built without oneDNN
    ],
)
def test_auto_takes_bf16_where_the_processor_multiplies_it_faster(
    native, faster, expected, monkeypatch
):
    monkeypatch.setattr(processor, "has_bf16_products", lambda: native)
    monkeypatch.setattr(processor, "has_tiles", lambda: False)
    monkeypatch.setattr(processor, "flags", lambda: frozenset({"avx512_bf16"}))
    monkeypatch.setattr(processor, "is_intel", lambda: not faster)
    for clock in ("perf_counter", "monotonic", "process_time", "time"):  # others may be at work
        monkeypatch.setattr(time, clock, lambda: pytest.fail("a clock is read"))
    assert choose_precision("auto", CPU) == expected
    assert choose_precision("fp32", CPU) == torch.float32


def test_bf16_where_there_is_none_is_refused(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: False)
    monkeypatch.setattr(precision, "has_bf16_products", lambda: True)
    assert choose_precision("bf16", CPU) == torch.bfloat16
    monkeypatch.setattr(precision, "has_bf16_products", lambda: False)
    for device in (CPU, torch.device("cuda")):
        with pytest.raises(ShapeshiftError, match=r"no bf16.*use training.precision=fp32 or auto"):
            choose_precision("bf16", device)
    assert choose_precision("auto", torch.device("cuda")) == torch.float32


@pytest.mark.long
@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="it is glibc's malloc")
@pytest.mark.parametrize("reserved", [False, True])
def test_small_blocks_leave_the_place_of_a_tensor_whole(reserved):
    code = f"""
import ctypes
from shapeshift.training import precision
libc = ctypes.CDLL(None)
libc.malloc.restype, libc.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
libc.free.argtypes = [ctypes.c_void_p]
libc.mallopt(-3, 32 << 20)  # large blocks are among the small ones, as in training
if {reserved}:
    precision._reserve_small_blocks()
tensor, neighbour = libc.malloc(10 << 20), libc.malloc(10 << 20)
libc.free(tensor)
for _ in range(4_000):  # 12 MB
    libc.malloc(3_000)
print(libc.malloc(10 << 20) == tensor)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == f"{reserved}\n"
