"""Which device and which type, and what is refused."""

import pytest
import torch

from shapeshift.errors import ShapeshiftError
from shapeshift.training import precision
from shapeshift.training.precision import autocast, choose_device, choose_precision

CPU = torch.device("cpu")


@pytest.mark.parametrize("name", ["gpu", "meta", "mps", "cpu:x", ""])
def test_an_unknown_device_is_refused_in_one_line(name):
    with pytest.raises(ShapeshiftError, match=r"use auto, cpu, cuda or cuda:N$") as caught:
        choose_device(name)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("name", "gpus"), [("cuda", 0), ("cuda:0", 0), ("cuda:2", 2)])
def test_a_gpu_that_is_not_there_is_refused(name, gpus, monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
    with pytest.raises(ShapeshiftError, match=rf"{name} does not exist \({gpus} GPUs"):
        choose_device(name)


@pytest.mark.parametrize(("there", "kind"), [(False, "cpu"), (True, "cuda")])
def test_auto_takes_a_gpu_if_there_is_one(there, kind, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: there)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: int(there))
    assert choose_device("auto").type == kind


@pytest.mark.parametrize("native", [True, False])
def test_auto_takes_bf16_where_the_processor_has_it(native, monkeypatch):
    monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda: native)
    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: False)
    assert choose_precision("auto", CPU) == (torch.bfloat16 if native else torch.float32)
    assert choose_precision("fp32", CPU) == torch.float32


def test_bf16_on_a_cpu_without_it_is_refused(monkeypatch):
    monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda: False)
    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: False)
    monkeypatch.setattr(precision, "_has_products_in_bf16", lambda: True)
    assert choose_precision("bf16", CPU) == torch.bfloat16
    monkeypatch.setattr(precision, "_has_products_in_bf16", lambda: False)
    with pytest.raises(ShapeshiftError, match=r"no bf16.*use training.precision=fp32 or auto"):
        choose_precision("bf16", CPU)


def test_bf16_on_a_gpu_without_it_is_refused(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: False)
    with pytest.raises(ShapeshiftError, match="no bf16"):
        choose_precision("bf16", torch.device("cuda"))
    assert choose_precision("auto", torch.device("cuda")) == torch.float32


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_products_are_in_the_chosen_type_and_norms_in_float32(dtype):
    x = torch.ones(2, 2)
    with autocast(CPU, dtype):
        assert (x @ x).dtype == dtype
        assert torch.nn.functional.layer_norm(x @ x, (2,), torch.ones(2)).isfinite().all()
        assert (x @ x).float().softmax(-1).dtype == torch.float32
