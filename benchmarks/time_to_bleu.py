"""Minutes of training until a validation BLEU that all toolkits reach: what a user waits for.

    benchmarks/peers.sh                 # Eole, Joey NMT and OpenNMT-py, each in its environment
    python benchmarks/time_to_bleu.py --text PATH/TO/multi30k --json curves.json
    python benchmarks/time_to_bleu.py --text PATH/TO/multi30k --json curves.json --time

Ours with absolute and with relative positions, Hugging Face's MarianMT, and the toolkits of
`peer.py` train models of the same shape, dropout and label smoothing, on the same batches of the
same text in the same order, with the same vocabulary (a joint BPE), each with the inverse square
root schedule and each of several peak learning rates. Every so many updates each translates the
validation text with its own greedy search; what it prints is scored here. What else differs between
the models: see `compare.py`.

The first command counts updates, so the machine may do other things. It keeps each curve in the
file when it has it, and goes on from there when it is called again. The second one, on a machine
that does nothing else, times updates of all systems by turns. A system's time is the updates of its
best rate until the target times the median time of one of its updates; the target is the highest
BLEU that all systems reach with their best rate. Validation does not count.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from importlib.metadata import version
from itertools import chain, count, islice, product
from pathlib import Path
from statistics import median
from types import SimpleNamespace
from typing import Any

import compare
import peer
import torch
from torch import Tensor

from shapeshift._system.threads import SETTINGS
from shapeshift.data.batching import Batch, make_batch, plan_epoch
from shapeshift.data.config import BatchConfig, SubwordsConfig
from shapeshift.data.subwords import PAD, Subwords
from shapeshift.decoding.search import beam_search
from shapeshift.evaluation.scores import evaluate
from shapeshift.model import ModelConfig, copy_for_inference
from shapeshift.training.precision import autocast, multiplies_bf16_faster, tune_cpu

OURS = {"shapeshift ape": "ape", "shapeshift rpe": "rpe"}
SYSTEMS = (*OURS, "marian", *compare.PEERS)
Curve = list[tuple[int, float]]
"""Updates, validation BLEU."""
TIMED, SKIPPED, ROUNDS = 40, 10, 5
"""Updates of a turn, those at its beginning that do not count, turns of each system."""


class System:
    """Ours or MarianMT, as `peer.learn` drives it."""

    def __init__(self, name: str, work: SimpleNamespace):
        compare.DROPOUT, self.name, self.work = work.dropout, name, work
        common = work.size, work.vocabulary, work.precision
        self.system: Any = (
            compare.Ours(*common, OURS[name]) if name in OURS else compare.Marian(*common)
        )
        self.model = self.system.model

    def set_rate(self, rate: float) -> None:
        for group in self.system.optimizer.param_groups:
            group["lr"] = rate

    def prepare(self, source: Tensor, target: Tensor) -> Batch:
        sides = ([[x for x in row if x > PAD] for row in ids.tolist()] for ids in (source, target))
        sources, targets = sides
        return make_batch([row[:-1] for row in sources], [row[1:-1] for row in targets])

    def train(self, batch: Batch) -> None:
        self.system.train(batch)

    def decode(self, source: Tensor, beam: int) -> list[list[int]]:
        most, dtype = self.work.limits[1], compare.DTYPES[self.work.precision]
        self.model.eval()
        with torch.inference_mode(), autocast(source.device, dtype):
            if self.name not in OURS:
                made = self.model.generate(
                    input_ids=source,
                    attention_mask=(source != PAD).long(),
                    num_beams=beam,
                    do_sample=False,
                    max_new_tokens=most,
                )
                return [row[1:] for row in made.tolist()]
            decoder = copy_for_inference(self.model, dtype)
            limits = torch.full((len(source),), most)
            found = beam_search(decoder.start(source, beam), limits, beam=beam)
            return [[*best.tokens] for best, *_ in found]


def read(args: argparse.Namespace, split: str) -> list[tuple[str, str]]:
    sides = [
        (args.text / f"{split}.{side}").read_text(encoding="utf-8").splitlines()
        for side in args.languages
    ]
    return [*zip(*sides, strict=True)]


def prepare(
    args: argparse.Namespace, folder: Path, updates: int | None = None
) -> tuple[dict[str, Any], Subwords]:
    """Return the work that all systems get, of some updates or all, and the subwords."""
    pairs, valid = read(args, "train"), read(args, "valid")
    subwords = Subwords.train(lambda: pairs, SubwordsConfig(vocab_size=args.vocabulary), folder)
    sources = subwords.encode_source([source for source, _ in pairs])
    targets = subwords.encode_target([target for _, target in pairs])
    lengths = [torch.tensor([len(x) for x in side]).numpy() for side in (sources, targets)]
    config = BatchConfig(max_tokens=args.tokens)
    plans = chain.from_iterable(plan_epoch(*lengths, config, seed=1, epoch=n) for n in count())
    batches = []
    for chosen in islice(plans, updates or args.updates):
        batch = make_batch([sources[i] for i in chosen], [targets[i] for i in chosen])
        target = torch.cat([batch.target_input[:, :1], batch.target_output], 1)
        batches.append((batch.source, target))
    encoded = subwords.encode_source([source for source, _ in valid])
    shape = ModelConfig(size=args.size)
    work = {
        "size": args.size,
        "shape": (shape.encoder_layers, shape.dim, shape.num_heads, shape.ff_dim),
        "vocabulary": subwords.source_size,
        "batches": batches,
        "sources": [
            make_batch(encoded[at : at + 32], [[]] * len(encoded[at : at + 32])).source
            for at in range(0, len(encoded), 32)
        ],
        "precision": args.precision,
        "threads": args.threads,
        "dropout": args.dropout,
        "smoothing": compare.SMOOTHING,
        "lr": 0.0,
        "limits": (0, 100),
        "every": args.every,
    }
    return work, subwords


def schedule(args: argparse.Namespace, peak: float) -> list[float]:
    """Return the learning rate of each update."""
    warm = args.warmup
    return [peak * min(n / warm, (warm / n) ** 0.5) for n in range(1, args.updates + 1)]


def run(args: argparse.Namespace, name: str, work: dict[str, Any]) -> dict[str, Any]:
    """Return what `peer.learn` does in a process of the system's own."""
    environment = os.environ | (SETTINGS if name in OURS else {})
    with tempfile.NamedTemporaryFile(suffix=".pt") as file:
        torch.save(work, file.name)
        if name in compare.PEERS:
            python = args.peers / name / "bin/python"
            program = [python, Path(__file__).parent / "peer.py", name, file.name]
        else:
            program = [sys.executable, __file__, "--system", name, "--work", file.name]
        done = subprocess.run(
            [*map(str, program)], env=environment, stdout=subprocess.PIPE, text=True, check=True
        )
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def learn(args: argparse.Namespace, kept: dict[str, Any]) -> Iterator[None]:
    """Train every system with every rate that `kept` lacks, and add its curve."""
    with tempfile.TemporaryDirectory() as folder:
        work, subwords = prepare(args, Path(folder))
    references = [target for _, target in read(args, "valid")]
    for peak, name in product(args.rates, args.systems):
        if f"{peak:g}" in kept["curves"].setdefault(name, {}):
            continue
        curve = []
        for update, ids in run(args, name, {**work, "schedule": schedule(args, peak)})["made"]:
            texts = [subwords.decode_target(row) for row in ids]
            scores = evaluate(texts, references, metrics=("bleu",)).scores
            curve.append((update, scores[0].value))
        kept["curves"][name][f"{peak:g}"] = curve
        print(f"{name}, {peak:g}: {max(bleu for _, bleu in curve):.2f} BLEU", flush=True)
        yield


def time_updates(args: argparse.Namespace) -> dict[str, list[float]]:
    """Return the median seconds of an update of each system, once for each turn."""
    with tempfile.TemporaryDirectory() as folder:
        work, _ = prepare(args, Path(folder), TIMED)
    work |= {"schedule": schedule(args, args.rates[0])[:TIMED], "sources": []}
    found: dict[str, list[float]] = {name: [] for name in args.systems}
    for _, name in product(range(ROUNDS), args.systems):
        found[name].append(median(run(args, name, work)["seconds"][SKIPPED:]))
    return found


def reached(curve: Curve, target: float) -> float | None:
    """Return the updates until a BLEU, between two measurements in proportion; None if never."""
    before = (0.0, 0.0)
    for update, bleu in curve:
        if bleu >= target:
            share = (target - before[1]) / (bleu - before[1])
            return before[0] + share * (update - before[0])
        before = update, bleu
    return None


def show(kept: dict[str, Any]) -> None:
    """Print what each system needs until the highest BLEU that all reach."""
    curves: dict[str, dict[str, Curve]] = kept["curves"]
    target = min(max(b for curve in own.values() for _, b in curve) for own in curves.values())
    print(
        f"\nuntil {target:.2f} BLEU on validation\n"
        "\n| system | best rate | updates | ms an update | minutes | of ours | best BLEU |"
        "\n|---|---:|---:|---:|---:|---:|---:|"
    )
    first = 0.0
    for name, own in curves.items():
        needed = {peak: reached(curve, target) for peak, curve in own.items()}
        updates, peak = min((x, peak) for peak, x in needed.items() if x is not None)
        best = max(bleu for curve in own.values() for _, bleu in curve)
        seconds = median(kept["seconds"].get(name, [math.nan]))
        minutes = updates * seconds / 60
        first = first or minutes
        print(
            f"| {name} | {peak} | {updates:,.0f} | {1000 * seconds:.0f} | {minutes:.1f} |"
            f" {minutes / first:.2f} | {best:.2f} |"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--text", type=Path, help="folder of train.en, train.de, valid.en …")
    parser.add_argument("--languages", nargs=2, default=("en", "de"))
    parser.add_argument("--systems", nargs="+", default=SYSTEMS, choices=SYSTEMS)
    parser.add_argument("--rates", nargs="+", type=float, default=(0.0005, 0.001, 0.002))
    parser.add_argument("--size", default="small")
    parser.add_argument("--dropout", type=float, default=0.3)
    parser.add_argument("--vocabulary", type=int, default=6000)
    parser.add_argument("--tokens", type=int, default=4096, help="of a batch, padded")
    parser.add_argument("--updates", type=int, default=2400)
    parser.add_argument("--warmup", type=int, default=600)
    parser.add_argument("--every", type=int, default=200, help="updates between validations")
    parser.add_argument("--threads", type=int, default=2)
    auto = "bf16" if multiplies_bf16_faster() else "fp32"
    parser.add_argument("--precision", default=auto, choices=("fp32", "bf16"))
    parser.add_argument("--peers", type=Path, default=Path(".peers"), help="of peers.sh")
    parser.add_argument("--json", type=Path, help="file of the curves, continued if it is there")
    parser.add_argument("--time", action="store_true", help="time updates; needs a quiet machine")
    parser.add_argument("--system", choices=SYSTEMS, help=argparse.SUPPRESS)
    parser.add_argument("--work", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.system:
        work = SimpleNamespace(**torch.load(args.work))
        torch.set_num_threads(work.threads)
        torch.manual_seed(1)
        if args.system in OURS:
            tune_cpu()
        print(json.dumps(peer.learn(System(args.system, work), work)))
        return
    if args.text is None or args.json is None:
        parser.error("--text and --json: name the folder of the text and the file of the curves")
    for name in (x for x in args.systems if x in compare.PEERS):
        if not (args.peers / name / "bin/python").exists():
            parser.error(f"no {name} in {args.peers}; run: benchmarks/peers.sh {args.peers}")
    names = ("size", "dropout", "vocabulary", "tokens", "updates", "warmup", "every", "precision")
    text = json.dumps([read(args, "train"), read(args, "valid")]).encode()
    given = {x: getattr(args, x) for x in names} | {"text": hashlib.sha256(text).hexdigest()}
    versions = {name: version(name) for name in ("torch", "transformers")}
    kept = {"settings": given, "versions": versions, "curves": {}, "seconds": {}}
    if args.json.exists():
        kept = json.loads(args.json.read_text(encoding="utf-8"))
        if kept["settings"] != given or kept["versions"] != versions:
            parser.error(f"{args.json} is of other settings or versions; name a new file")
    if args.time:
        kept["seconds"] = time_updates(args)
        kept["threads"] = args.threads
    else:
        for _ in learn(args, kept):
            args.json.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")
    args.json.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")
    show(kept)


if __name__ == "__main__":
    main()
