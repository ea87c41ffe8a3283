"""Training tokens a second and decoding sentences a second, by position scheme.

    python benchmarks/speed.py [--size small] [--length 32] [--positions ape,shape,rpe]

Whole training steps (forward, backward, Adam) on random sentences of one length, and beam search
that is not allowed to stop early, so every scheme does the same work. The schemes take turns, so
that noise of the machine meets all alike; each figure is a median, and ratios are to the first.
"""

from __future__ import annotations

import argparse
import statistics
import time

import torch

from shapeshift.data.batching import Batch
from shapeshift.decoding.search import beam_search
from shapeshift.model import ModelConfig, Transformer, build
from shapeshift.positions import SCHEMES
from shapeshift.training.config import TrainingConfig
from shapeshift.training.precision import autocast, choose_device, choose_precision
from shapeshift.training.step import TrainingStep, random_batch


class System:
    """One scheme with its optimiser and its timings."""

    def __init__(self, name: str, args: argparse.Namespace):
        self.device = choose_device(args.device)
        self.dtype = choose_precision(args.precision, self.device)
        torch.manual_seed(0)
        config = ModelConfig(size=args.size)
        self.model: Transformer = build(config, SCHEMES[name], args.vocabulary, args.vocabulary)
        self.model.to(self.device)
        self.step = TrainingStep(self.model, TrainingConfig(precision=args.precision))
        self.train_s: list[float] = []
        self.decode_s: list[float] = []

    def train(self, batch: Batch) -> None:
        self.model.train()
        began = time.perf_counter()
        self.step(batch)
        self._wait()
        self.train_s.append(time.perf_counter() - began)

    @torch.inference_mode()
    def decode(self, source: torch.Tensor, beam: int, length: int) -> None:
        self.model.eval()
        limits = torch.full((len(source),), length, device=self.device)
        began = time.perf_counter()
        with autocast(self.device, self.dtype):
            beam_search(self.model.start(source, beam), limits, beam=beam)
        self._wait()
        self.decode_s.append(time.perf_counter() - began)

    def _wait(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--size", default="small")
    parser.add_argument("--length", type=int, default=32, help="subwords of every sentence")
    parser.add_argument("--tokens", type=int, default=4096, help="of a training batch")
    parser.add_argument("--sentences", type=int, default=64, help="of a decoding batch")
    parser.add_argument("--beam", type=int, default=4)
    parser.add_argument("--vocabulary", type=int, default=8000)
    parser.add_argument("--positions", default="ape,shape,rpe,learned,nope")
    parser.add_argument("--precision", default="auto")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--repeats", type=int, default=7)
    args = parser.parse_args()

    systems = {name: System(name, args) for name in args.positions.split(",")}
    device = next(iter(systems.values())).device

    training, decoding = (
        random_batch(num_sentences, args.length, (args.vocabulary, args.vocabulary), device)
        for num_sentences in (max(1, args.tokens // args.length), args.sentences)
    )
    for _ in range(args.repeats + 1):
        for system in systems.values():
            system.train(training)
            system.decode(decoding.source, args.beam, args.length)

    first = next(iter(systems.values()))
    print(
        f"{args.size}, {args.length} subwords, {str(first.dtype).removeprefix('torch.')}, "
        f"{torch.get_num_threads()} threads, {device}, torch {torch.__version__}"
    )
    print("position  train tokens/s  ratio  decode sentences/s  ratio")
    for name, system in systems.items():
        train, decode = (
            statistics.median(times[1:]) for times in (system.train_s, system.decode_s)
        )
        base_train, base_decode = (
            statistics.median(times[1:]) for times in (first.train_s, first.decode_s)
        )
        print(
            f"{name:8}  {training.num_target_tokens / train:14,.0f}  {base_train / train:5.2f}"
            f"  {args.sentences / decode:18.1f}  {base_decode / decode:5.2f}"
        )


if __name__ == "__main__":
    main()
