"""Translations a second by engine, for one model with random weights: by turns, best of several.

    python benchmarks/engines.py --size small --position rpe --beam 4

The model never ends a sentence by itself, so that all engines take the same number of steps.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path

import torch

from shapeshift.data.config import SubwordsConfig
from shapeshift.data.grammar import generate
from shapeshift.data.subwords import EOS, Subwords
from shapeshift.decoding.config import DecodingConfig, NoPenalty
from shapeshift.decoding.running import Runner
from shapeshift.export import ctranslate2, onnx
from shapeshift.export.folder import Trained
from shapeshift.export.running import open_export
from shapeshift.model import ModelConfig, build
from shapeshift.model.position_config import PositionConfig
from shapeshift.positions import SCHEMES


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", default="small")
    parser.add_argument("--position", default="rpe", choices=SCHEMES)
    parser.add_argument("--beam", type=int, default=4)
    parser.add_argument("--sentences", type=int, default=200)
    parser.add_argument("--steps", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    torch.manual_seed(0)
    config = DecodingConfig(
        beam=args.beam,
        max_length_a=0,
        max_length_b=args.steps,
        max_sentences=32,
        length_penalty=NoPenalty(),
    )
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        pairs = [*generate(20_000, seed=1, max_words=20)]
        subwords = Subwords.train(
            lambda: pairs, SubwordsConfig(vocab_size=2000), folder / "subwords"
        )
        shape, size = ModelConfig(size=args.size), subwords.source_size
        model = build(shape, SCHEMES[args.position], size, size).eval()
        with torch.no_grad():
            model.output.weight[EOS] = 0.0
        sources = subwords.encode_source([source for source, _ in pairs[: args.sentences]])
        engines: dict[str, Runner] = {
            "torch": Runner(model, config),
            "torch, bf16": Runner(model, config, autocast=torch.bfloat16),
        }
        trained = Trained(model, shape, PositionConfig(name=args.position), subwords)
        onnx.export(trained, folder / "onnx")
        for quantization in (None, "int8"):
            target = folder / f"ctranslate2 {quantization or ''}".strip()
            ctranslate2.export(trained, target, quantization=quantization)
        for path in sorted(folder.iterdir()):
            if path.name != "subwords":
                engines[path.name] = open_export(path, subwords, config, torch.device("cpu"))
        times: dict[str, list[float]] = {name: [] for name in engines}
        for _ in range(args.rounds):
            for name, engine in engines.items():
                start = time.perf_counter()
                engine.search(sources)
                times[name].append(time.perf_counter() - start)
    print(f"{args.size}, {args.position}, beam {args.beam}, {args.threads} threads: sentences/s")
    for name, seconds in times.items():
        rates = [args.sentences / each for each in seconds]
        print(f"{name:16} {statistics.median(rates):7.1f}  ({min(rates):.1f} to {max(rates):.1f})")


if __name__ == "__main__":
    main()
