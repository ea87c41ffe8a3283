"""The device and the precision of a run."""

from __future__ import annotations

import ctypes
import functools
import os
import platform
import re
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path

import torch
from torch.nn.attention import sdpa_kernel

from shapeshift._system.errors import ShapeshiftError
from shapeshift.attention import ANY_SHAPE
from shapeshift.kernels.processor import has_bf16_products, multiplies_bf16_faster
from shapeshift.training.config import TrainingConfig


def describe_hardware(device: torch.device) -> str:
    """Return the name of a device: `NVIDIA H100 PCIe`, or `AMD EPYC, 2 threads`."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    name, threads = platform.processor() or platform.machine(), torch.get_num_threads()
    with suppress(OSError):  # it exists on Linux only
        described = Path("/proc/cpuinfo").read_text(encoding="utf-8")
        if match := re.search(r"^model name\s*: (.+)$", described, re.MULTILINE):
            name = match[1].strip()
    return f"{name}, {threads} thread{'s' * (threads > 1)}"


def choose_device(name: str, local_rank: int | None = None) -> torch.device:
    """Return the device that `training.device` names; `auto` selects a GPU if there is one. Of
    several processes on this machine, each takes the GPU of its own number, its `local_rank`.

    Raises:
        ShapeshiftError: for a device that is neither CPU nor CUDA, or a GPU that does not exist.
    """
    if not re.fullmatch(r"auto|cpu|cuda(:\d+)?", name):
        raise ShapeshiftError(f"unknown training.device {name!r}; use auto, cpu, cuda or cuda:N")
    if name == "cpu" or (name == "auto" and not torch.cuda.is_available()):
        return torch.device("cpu")
    device, count = torch.device("cuda" if name == "auto" else name), torch.cuda.device_count()
    if local_rank is not None:
        if ":" in name:
            raise ShapeshiftError(
                f"training.device={name} is one GPU and there are several processes; use"
                " training.device=cuda, which gives each its own"
            )
        device = torch.device("cuda", local_rank)
    if (device.index or 0) >= count:
        fewer = "" if local_rank is None else ", or start fewer processes"
        raise ShapeshiftError(
            f"training.device={name}: there is no {device} here, PyTorch sees {count} GPUs; use"
            f" auto or cpu{fewer}"
        )
    return device


def choose_precision(name: str, device: torch.device) -> torch.dtype:
    """Return the dtype of matrix products; `auto` selects bf16 on a GPU that has it, and on a CPU
    that multiplies it faster than float32.

    Raises:
        ShapeshiftError: if bf16 is asked for on a GPU without it, or on a CPU where it takes many
            times longer than float32.
    """
    if name == "fp32":
        return torch.float32
    on_gpu = device.type == "cuda"
    has_bf16 = on_gpu and torch.cuda.is_bf16_supported(including_emulation=False)
    if name == "auto":
        fast = has_bf16 if on_gpu else multiplies_bf16_faster()
        return torch.bfloat16 if fast else torch.float32
    if not (has_bf16 if on_gpu else has_bf16_products()):
        raise ShapeshiftError(
            f"this {'GPU' if on_gpu else 'CPU'} has no bf16, in which it would take many times as"
            " long; use training.precision=fp32 or auto"
        )
    return torch.bfloat16


def check_hardware(config: TrainingConfig, local_rank: int | None = None) -> None:
    """Raise `ShapeshiftError` if this machine lacks the device or the precision of a run."""
    choose_precision(config.precision, choose_device(config.device, local_rank))


def tune_cpu() -> None:
    """Configure a CPU for a long run; call it before the first matrix product.

    Denormal numbers, which Adam's moments reach, are 100 times slower than others: they become
    zero. oneDNN keeps the compiled product of each of the last 1,024 shapes, with its memory, which
    grew by gigabytes on batches of many shapes; 32 are as fast (dev/log.md). glibc returns the
    memory of each large tensor to the system, which clears it for the next one: it is kept instead.
    Environment variables of the user take precedence.
    """
    torch.set_flush_denormal(True)
    os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "32")
    chosen = any(name.startswith("MALLOC_") for name in os.environ)
    chosen |= "_threshold" in os.environ.get("GLIBC_TUNABLES", "")
    if platform.libc_ver()[0] == "glibc" and not chosen:
        trim_threshold, mmap_threshold = -1, -3  # malloc.h
        libc = ctypes.CDLL(None)
        libc.mallopt(mmap_threshold, 32 << 20)  # the largest value that it accepts
        libc.mallopt(trim_threshold, 2**31 - 1)
        _reserve_small_blocks()


@functools.cache
def _reserve_small_blocks() -> None:
    """Reserve free blocks of all sizes up to 6 kB, once per process. Without them, glibc cuts small
    blocks off the memory of freed tensors, which then do not fit the next tensor of that size: base
    in bf16 takes up to a sixth more memory (dev/log.md)."""
    libc = ctypes.CDLL(None)
    libc.malloc.restype, libc.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
    libc.free.argtypes = [ctypes.c_void_p]
    blocks: list[int | None] = []
    try:
        for size in range(24, 6000, 16):
            for _ in range(300 if size < 600 else 50):
                blocks.append(libc.malloc(size))
                libc.malloc(8)  # stays: free neighbours would become one block
    finally:  # also where memory runs out, which is to be reported
        for block in blocks:
            libc.free(block)


@contextmanager
def tuned(device: torch.device) -> Iterator[None]:
    """Context: on a CPU, apply `tune_cpu`, and restore the treatment of denormal numbers at the
    end. On a GPU, use only attention kernels that need no plan for each new shape."""
    if device.type != "cpu":
        with sdpa_kernel(ANY_SHAPE):
            yield
        return
    tune_cpu()
    try:
        yield
    finally:
        torch.set_flush_denormal(False)


def autocast(device: torch.device, dtype: torch.dtype) -> AbstractContextManager[None]:
    """Return a context in which matrix products are done in `dtype`, sums and norms in float32."""
    return torch.autocast(device.type, dtype=dtype, enabled=dtype != torch.float32)
