"""What a run began on is kept, continued with, and not compared with another kind."""

import json
import shutil
from dataclasses import replace

import pytest
import torch

from shapeshift._system.errors import ShapeshiftError
from shapeshift.run import train
from shapeshift.run.folder import Run
from shapeshift.run.machine import MACHINE, Machine
from shapeshift.run.record import RunFolder
from shapeshift.study.launchers import InProcess
from shapeshift.study.results import check_alike, collect
from shapeshift.study.runner import run_all
from shapeshift.training import precision
from shapeshift.training.log import read_log
from shapeshift.training.parallel import Parallel

AUTO = "training.precision=auto"
CPU = Machine(device="cpu", precision="fp32", threads=1, hardware="a processor, 1 thread")
GPU = Machine(device="cuda", precision="bf16", threads=1, hardware="NVIDIA H200")


@pytest.fixture
def processor(monkeypatch):
    """dtype → this machine has bf16, and its `training.precision=auto` stands for the dtype"""
    monkeypatch.setattr(precision, "has_bf16_products", lambda: True)

    def choose(dtype):
        is_bf16 = dtype == torch.bfloat16
        monkeypatch.setattr(precision, "multiplies_bf16_faster", lambda: is_bf16)

    return choose


def test_a_run_says_what_it_is_trained_on(finished):
    document = json.loads((finished.directory / MACHINE).read_text("utf-8"))
    assert document["device"] == "cpu"
    assert document["precision"] in ("fp32", "bf16")
    assert document["threads"] == torch.get_num_threads()
    assert document["hardware"]
    assert MACHINE in (finished.directory / "SHA256SUMS").read_text("utf-8")


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["fp32", "bf16"])
def test_a_run_continues_in_the_precision_it_began_with(
    again, processor, tmp_path, monkeypatch, dtype
):
    """A bf16 update of this run differs from one in float32 in the first bits of a weight."""
    processor(dtype)
    whole = again(tmp_path / "whole", AUTO)
    with pytest.raises(KeyboardInterrupt):
        again(tmp_path / "run", AUTO, stop_at=3)
    processor(torch.float32 if dtype == torch.bfloat16 else torch.bfloat16)
    used = []
    make = train.Trainer
    monkeypatch.setattr(
        train, "Trainer", lambda model, config, *x: used.append(config) or make(model, config, *x)
    )
    resumed = again(tmp_path / "run", AUTO)
    names = {torch.float32: "fp32", torch.bfloat16: "bf16"}
    assert [config.precision for config in used] == [names[dtype]]
    assert resumed.config.training.precision == "auto"
    assert resumed.training.precision == names[dtype]
    assert resumed.weights().read_bytes() == whole.weights().read_bytes()
    lines = [[line["loss"] for line in read_log(x.directory / "log.jsonl") if "loss" in line]
             for x in (whole, resumed)]  # fmt: skip
    assert lines[0] == lines[1]


def test_a_run_on_another_kind_of_device_is_refused_with_ways_out(
    again, processor, tmp_path, monkeypatch
):
    processor(torch.float32)
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 0)
    folder = tmp_path / "run"
    with pytest.raises(KeyboardInterrupt):
        again(folder, AUTO, stop_at=3)
    (folder / "SHA256SUMS").unlink()
    (folder / MACHINE).write_text(GPU.model_dump_json(), "utf-8")
    ways = r"began in bf16 on a GPU \(NVIDIA H200\).*{}.*new folder, or remove machine"
    for device, reason in (("cpu", "training.device=cpu"), ("auto", "there is no cuda here")):
        with pytest.raises(ShapeshiftError, match=ways.format(reason)):
            again(folder, AUTO, f"training.device={device}")
    (folder / MACHINE).unlink()
    again(folder, AUTO)
    assert Machine.read(folder).device == "cpu"


def test_a_finished_run_opens_wherever_it_was_trained_and_whatever_it_says(copied, again):
    expected = Run(copied).translate(["go"])
    (copied / "SHA256SUMS").unlink()
    (copied / MACHINE).write_text(GPU.model_dump_json(), "utf-8")
    again(copied)  # nothing is left to train
    assert Run(copied).training == Run(copied).config.training
    assert len(Run(copied).translate(["go"])) == 1
    (copied / MACHINE).unlink()  # as of earlier versions
    assert Run(copied).translate(["go"]) == expected
    (copied / MACHINE).write_text("{}", "utf-8")
    with pytest.raises(ShapeshiftError, match=r"remove it, and the run continues as this machine"):
        Run(copied).translate(["go"])


@pytest.mark.parametrize(
    ("settings", "other", "same"),
    [
        ((), CPU.model_copy(update={"hardware": "another", "threads": 4}), True),
        ((), CPU.model_copy(update={"precision": "bf16"}), False),
        (("training.precision=fp32",), CPU.model_copy(update={"precision": "bf16"}), True),
        (("training.precision=fp32",), CPU.model_copy(update={"device": "cuda"}), False),
        ((), None, True),
    ],
)
def test_runs_that_are_compared_have_one_precision_and_kind_of_device(
    plan_run, settings, other, same
):
    runs = [plan_run(AUTO, *settings, f"training.seed={seed}") for seed in (1, 2)]
    if same:
        check_alike(runs, [CPU, other])
        return
    both = rf"shape/1 trains in {CPU} \(.*shape/2 in {other}.*--directory"
    with pytest.raises(ShapeshiftError, match=both):
        check_alike(runs, [CPU, other])
    check_alike([runs[0], replace(runs[1], grid="of another study")], [CPU, other])


@pytest.mark.parametrize("order", [(0, 1, 2), (1, 0, 2), (2, 0, 1)])
def test_a_precision_that_one_run_names_and_another_is_left_is_no_axis(plan_run, order):
    """fp32 and bf16 may be compared where all runs name one."""
    bf16 = CPU.model_copy(update={"precision": "bf16"})
    runs = [plan_run(AUTO, f"training.precision={x}") for x in ("fp32", "bf16", "auto")]
    given = [(runs[place], (CPU, bf16, bf16)[place]) for place in order]
    check_alike(runs[:2], [CPU, bf16])
    with pytest.raises(ShapeshiftError, match="or give each a training"):
        check_alike(*zip(*given, strict=True))


def test_a_grid_is_not_continued_or_shown_with_another_precision(
    plan_run, make_config, processor, prepared, tmp_path
):
    runs = [plan_run(AUTO, "training.max_updates=2", f"training.seed={seed}") for seed in (1, 2)]
    processor(torch.float32)
    assert run_all(runs[:1], tmp_path, InProcess(), prepared_root=prepared) == []
    processor(torch.bfloat16)
    for weights in ("there", "gone"):  # as where a kept run was unpacked
        if weights == "gone":
            shutil.rmtree(RunFolder(tmp_path / runs[0].key).run / "checkpoints")
            (RunFolder(tmp_path / runs[0].key).run / "average.safetensors").unlink()
        with pytest.raises(ShapeshiftError, match=r"shape/1 trains in fp32 .*shape/2 in bf16"):
            run_all(runs, tmp_path, InProcess(), prepared_root=prepared)
    assert not RunFolder(tmp_path / runs[1].key).run.exists()
    assert run_all(runs[1:], tmp_path, InProcess(), prepared_root=prepared) == []
    assert len(collect(runs[:1], tmp_path)) == len(collect(runs[1:], tmp_path)) > 0
    with pytest.raises(ShapeshiftError, match=r"shape/1 trains in fp32 .*shape/2 in bf16"):
        collect(runs, tmp_path)
    (RunFolder(tmp_path / runs[1].key).run / MACHINE).unlink()
    with pytest.raises(ShapeshiftError, match=r"shape/2 does not say what it was trained on"):
        collect(runs, tmp_path)


def test_all_processes_take_the_main_one_s_precision(make_config, monkeypatch):
    parallel = Parallel(rank=0)
    for first, expected in ((2, "fp32"), (3, "bf16")):
        monkeypatch.setattr(Parallel, "broadcast", lambda self, own, first=first: first)
        training = make_config("training.precision=fp32", "training.device=cpu").training
        monkeypatch.setattr(train, "choose_precision", lambda name, device: None)
        assert train._agree(training, parallel).precision == expected
    monkeypatch.setattr(Parallel, "broadcast", lambda self, own: 0)
    with pytest.raises(ShapeshiftError, match="start all processes on one kind of device"):
        train._agree(training, parallel)
