"""What the training loop adds to a bare training step: batches, guards, seeds, the log.

    python benchmarks/loop.py [--size tiny] [--tokens 1280] [--updates 100]

`Trainer.fit` trains on random pairs of 5 to 20 subwords; after each of its updates, a bare
`TrainingStep` of an equal model takes a step on a batch of its own: products are faster in the
shapes that were just computed. Medians in milliseconds, and the loop's speed as a share of the bare
step's.
"""

from __future__ import annotations

import argparse
import random
import statistics
import tempfile
import time
from contextlib import closing
from pathlib import Path

import torch

from shapeshift._system.threads import set_num_threads
from shapeshift.data.batching import collate, plan_epoch
from shapeshift.data.config import BatchConfig
from shapeshift.data.store import TokenStore, write_store
from shapeshift.model import ModelConfig, build
from shapeshift.positions import SCHEMES
from shapeshift.training.checkpoints import Checkpoints
from shapeshift.training.config import TrainingConfig
from shapeshift.training.log import Log
from shapeshift.training.observer import Observer
from shapeshift.training.step import TrainingStep
from shapeshift.training.trainer import Trainer

VOCABULARY = 1000


def random_store(folder: Path, num_pairs: int) -> TokenStore:
    rng = random.Random(0)
    pairs = []
    for _ in range(num_pairs):
        length = rng.randint(5, 20)
        sides = (length, max(1, length + rng.randint(-3, 3)))
        pairs.append(tuple([rng.randrange(5, VOCABULARY) for _ in range(side)] for side in sides))
    return write_store(folder, pairs, source_size=VOCABULARY, target_size=VOCABULARY)


class ByTurns(Observer):
    """Times each update of the loop, and then a bare step on the same batch."""

    def __init__(self, step: TrainingStep, store: TokenStore, config: TrainingConfig):
        self.step, self.store = step, store
        lengths = store.source_lengths, store.target_lengths
        self.plan = plan_epoch(*lengths, config.batch, seed=config.seed, epoch=0)
        self.loop_s: list[float] = []
        self.bare_s: list[float] = []
        self.began = 0.0

    def advanced(self, update: int) -> None:
        now = time.perf_counter()
        if update:
            self.loop_s.append(now - self.began)
            batch = collate(self.store, self.plan[-update])
            began = time.perf_counter()
            self.step(batch)
            self.bare_s.append(time.perf_counter() - began)
        self.began = time.perf_counter()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--size", default="tiny")
    parser.add_argument("--tokens", type=int, default=1280, help="of a batch, padded")
    parser.add_argument("--updates", type=int, default=100)
    parser.add_argument("--position", default="ape", choices=SCHEMES)
    args = parser.parse_args()
    model_config = ModelConfig(size=args.size)
    set_num_threads(model_config.dim)
    config = TrainingConfig(
        max_updates=args.updates,
        checkpoint_every=args.updates,
        log_every=50,
        device="cpu",
        batch=BatchConfig(max_tokens=args.tokens),
    )
    looped, bare = (
        build(model_config, SCHEMES[args.position], VOCABULARY, VOCABULARY) for _ in range(2)
    )
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        train = random_store(folder / "train", args.updates * args.tokens // 5)
        valid = random_store(folder / "valid", 10)
        trainer = Trainer(looped, config, train, valid, Checkpoints(folder / "checkpoints", 1))
        watch = ByTurns(TrainingStep(bare, config), train, config)
        with closing(Log(folder, 0)) as log:
            trainer.fit(log, watch)
    loop_ms, bare_ms = (1e3 * statistics.median(x[5:]) for x in (watch.loop_s, watch.bare_s))
    print(
        f"{args.size}, {args.tokens} tokens, {torch.get_num_threads()} threads: an update"
        f" {loop_ms:.1f} ms, a bare step {bare_ms:.1f} ms, {bare_ms / loop_ms:.2f} of its speed"
    )


if __name__ == "__main__":
    main()
