"""Train a tiny model in several processes, in every way that `test_distributed.py` asks for.

    python tests/integration/ranks.py FOLDER

The processes are forked from this one, which has imported the package, and talk over gloo. Each
writes what it saw to `FOLDER/RUN/RANK.json`; gradients go to `FOLDER/RUN/gradients.safetensors`.
"""

from __future__ import annotations

import json
import math
import multiprocessing
import os
import signal
import socket
import sys
import time
from pathlib import Path

import torch
import torch._dynamo  # which DistributedDataParallel imports, in every process: two seconds
from safetensors.torch import save_file

from shapeshift._system.errors import ShapeshiftError
from shapeshift.training.config import TrainingConfig
from shapeshift.training.log import Log
from shapeshift.training.observer import Observer
from shapeshift.training.parallel import join
from shapeshift.training.stopping import StoppedError, StopSignals

sys.path.insert(0, str(Path(__file__).parents[1]))
from unit.training.conftest import make_lab, write_stores

TIMEOUT_S = 55


SETTINGS = {
    "max_updates": 6,
    "accumulation": 4,
    # With Adam's usual 1e-8 a gradient that is zero but for rounding, such as that of the bias
    # of the keys, would move its weight by all of the learning rate.
    "optimizer": {"eps": 1e-3},
    "clip_norm": 1.0,
    "log_every": 1,
    "checkpoint_every": 2,
    "rank_timeout_s": 20,
}


class Seen:
    """What one process sees of its training."""

    def __init__(self, trainer):
        self.trainer = trainer
        self.pairs, self.draws, self.steps, self.gradients = [], [], [], {}
        batch = trainer._batch

        def watched(store, pairs):
            if store is trainer.train:
                self.pairs.append([trainer.progress.update + 1, *map(int, pairs)])
            return batch(store, pairs)

        trainer._batch = watched
        trainer.model.source.register_forward_hook(self._see_draws)
        trainer.optimizer.register_step_pre_hook(self._see_step)

    def _see_draws(self, module, _, out):
        if module.training:
            embedded, pos = out
            dropped = (embedded == 0).flatten().tolist()
            self.draws.append([pos[:, 0].tolist(), sum(n for n, x in enumerate(dropped) if x)])

    def _see_step(self, *_):
        update = self.trainer.progress.update + 1
        self.steps.append(update)
        if update <= 2:
            for name, p in self.trainer.model.named_parameters():
                self.gradients[f"{update}.{name}"] = p.grad.clone()


def once(trainer, rank, update, do):
    """Call `do(output)` in one process after the first forward pass of an update; what it returns
    takes the place of the output."""
    done = []

    def hook(module, _, out):
        here = trainer.parallel.rank == rank and trainer.progress.update == update - 1
        if not here or not module.training or done:
            return out
        done.append(True)
        return do(out)

    trainer.model.register_forward_hook(hook)


def poison(trainer):
    """Make the loss of a batch of the second process infinite."""
    once(trainer, 1, 3, lambda out: out * math.inf)


def send(number, update):
    """Return what sends a signal to the second process in the middle of an update."""

    def do(out):
        os.kill(os.getpid(), number)
        return out

    return lambda trainer: once(trainer, 1, update, do)


def train(lab, run, spoil):
    """Train, or go on; return what this process saw."""
    folder = lab.folder
    with join(TrainingConfig(device="cpu", **SETTINGS)) as parallel:
        trainer = lab.make(run, parallel=parallel, **SETTINGS)
        resumed = trainer.resume()
        seen = Seen(trainer)
        if spoil:
            spoil(trainer)
        log = Log(folder / run, trainer.progress.update) if parallel.is_main else None
        report = {"resumed": resumed and resumed.progress.update, "began": trainer.progress.update}
        try:
            with StopSignals() as stop:
                trainer.fit(log, Observer(), stop)
        except (ShapeshiftError, StoppedError) as error:
            report["error"], report["kind"] = str(error), type(error).__name__
        finally:
            if log is not None:
                log.close()
        if parallel.is_main and seen.gradients:
            save_file(seen.gradients, str(folder / run / "gradients.safetensors"))
        report |= {
            "checkpoints": trainer.checkpoints.updates(),
            "pairs": seen.pairs,
            "draws": seen.draws,
            "steps": seen.steps,
            "updates": trainer.progress.update,
            "finite": all(bool(p.isfinite().all()) for p in trainer.model.parameters()),
        }
        return report


def fork_ranks(lab, run, world, spoil):
    """Train in `world` forked processes; return how each of them ended, and when."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]

    def train_one(rank):
        os.environ.update(RANK=str(rank), WORLD_SIZE=str(world), LOCAL_RANK=str(rank))
        os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
        try:
            report = train(lab, run, spoil)
        except ShapeshiftError as error:  # a process that was lost
            sys.exit(f"{run}, rank {rank}: {error}")
        (lab.folder / run / f"{rank}.json").write_text(json.dumps(report), encoding="utf-8")

    fork = multiprocessing.get_context("fork")
    children = [fork.Process(target=train_one, args=(rank,)) for rank in range(world)]
    began = time.monotonic()
    for child in children:
        child.start()
    ends = []
    for child in children:
        child.join(TIMEOUT_S)
        child.kill()
        child.join()
        ends.append((child.exitcode, time.monotonic() - began))
    return ends


def main() -> None:
    folder = Path(sys.argv[1])
    torch.set_num_threads(1)
    lab, ends = make_lab(write_stores(folder), folder), {}

    def go(run, world, spoil=None):
        ends.setdefault(run, []).append(fork_ranks(lab, run, world, spoil))

    for world in (1, 2, 4):
        go(f"ddp-{world}", world)
    go("nonfinite", 2, poison)
    go("killed", 2, send(signal.SIGKILL, update=4))
    go("killed", 1)
    go("stopped", 2, send(signal.SIGTERM, update=3))
    for rank in range(2):
        (folder / "stopped" / f"{rank}.json").rename(folder / "stopped" / f"first-{rank}.json")
    go("stopped", 2)
    (folder / "ends.json").write_text(json.dumps(ends), encoding="utf-8")


if __name__ == "__main__":
    main()
