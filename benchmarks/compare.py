"""Our training and decoding next to Hugging Face's MarianMT, on the same batches in one run.

    python benchmarks/compare.py training [--size small] [--precision fp32] [--threads 1]
    python benchmarks/compare.py decoding [--beam 4]
    python benchmarks/compare.py training|decoding --apart
    python benchmarks/compare.py memory
    python benchmarks/compare.py peers     # and other toolkits, which peers.sh installs

Text: `--text train.en train.de`, or the built-in corpus. A joint BPE of 8,000 (built-in: 7,000) is
learnt on it and batches are cut by our own planner (4,096 padded tokens a side). Both models have
the same shape, dropout, label smoothing and Adam (fused, one step a batch). The two take turns,
batch by batch, so that noise of the machine meets both alike; ratios are medians of the ratios of
neighbouring steps, with their quartiles. To take turns costs each something, in bf16 MarianMT more
than us. With `--apart` each trains or decodes in processes of its own, one after the other, ours
with the settings of memory, and in training of oneDNN, that the command line has, MarianMT with its
own; ratios are then of neighbouring processes.

What is counted: real source tokens plus real target tokens, `</s>` included, `<s>` and padding not.
Decoding: forced steps of search, none may end early; sentences a second.
Memory: peak resident set of a process that takes 8 steps and does nothing else.

MarianMT is trained as a user's plain loop does: `model(input_ids, attention_mask,
decoder_input_ids)`, cross-entropy with label smoothing over the logits, padding ignored. In bf16 it
trains under autocast; for decoding its weights are cast to bf16, or stay in float32 under autocast
(`--precision autocast`).

`peers` prints a table. Each system has processes of its own, one after the other, in several
rounds; ratios are of one round. The batches are saved once and read by all (`benchmarks/peer.py`).
All are pre-norm except MarianMT, which is post-norm. What else differs: Adam is fused in ours and
in MarianMT; the other three drop out after the activation, too, and Joey NMT attention as well, for
which it has one rate; OpenNMT-py has a bias of the output; Joey NMT caches no keys in its search,
and its loss lacks the entropy of the smoothed target. Each checks that its loss falls and that each
translation has all forced steps. In bf16, OpenNMT-py, which has none on CPUs, is under autocast.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from itertools import islice
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional as F

from shapeshift._system.threads import SETTINGS
from shapeshift.data.batching import Batch, make_batch, plan_epoch
from shapeshift.data.config import BatchConfig, SubwordsConfig
from shapeshift.data.grammar import generate
from shapeshift.data.subwords import BOS, EOS, PAD, Subwords
from shapeshift.decoding.search import beam_search
from shapeshift.model import (
    ModelConfig,
    Transformer,
    build,
    copy_for_inference,
    label_smoothed_loss,
)
from shapeshift.positions import SCHEMES, Scheme
from shapeshift.training.config import TrainingConfig
from shapeshift.training.precision import autocast, tune_cpu
from shapeshift.training.step import TrainingStep

CPU = torch.device("cpu")
SYSTEMS = ("shapeshift", "marian")
PEERS = {"opennmt": "OpenNMT-py", "eole": "Eole", "joey": "Joey NMT"}
DROPOUT, SMOOTHING, LR = 0.1, 0.1, 1e-3
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "autocast": torch.bfloat16}


class Ours:
    def __init__(
        self,
        size: str,
        vocabulary: int,
        precision: str,
        position: str | Scheme,
        device: torch.device = CPU,
        compiled: bool = False,
    ):
        config = ModelConfig(size=size, dropout=DROPOUT)
        self.dtype = DTYPES[precision]
        self.model = build(config, position, vocabulary, vocabulary).to(device)
        self.decoder: Transformer | None = None  # its weights laid out once, as a `Runner` does
        training = TrainingConfig(
            precision="fp32" if precision == "fp32" else "bf16",
            label_smoothing=SMOOTHING,
            clip_norm=None,
            compile=compiled,
        )
        self.step = TrainingStep(self.model, training)
        self.optimizer = self.step.optimizer

    def loss(self, batch: Batch) -> Tensor:
        ids = (batch.source, batch.target_input, batch.target_output)
        loss = label_smoothed_loss(self.model, *ids, SMOOTHING, batch.real)
        return loss.smoothed / loss.num_tokens

    def train(self, batch: Batch) -> None:
        self.step(batch)

    @torch.inference_mode()
    def translate(self, source: Tensor, beam: int, steps: int) -> None:
        if self.decoder is None:
            self.model.output.weight[EOS] = 0  # untrained, no hypothesis ends then
            self.decoder = copy_for_inference(self.model, self.dtype)
        limits = torch.full((len(source),), steps, device=source.device)
        with autocast(source.device, self.dtype):
            found = beam_search(self.decoder.start(source, beam), limits, beam=beam)
        assert all(hypotheses[0].length == steps for hypotheses in found)


class Marian:
    def __init__(
        self,
        size: str,
        vocabulary: int,
        precision: str,
        device: torch.device = CPU,
        max_length: int = 1024,
    ):
        from transformers import MarianConfig, MarianMTModel

        shape = ModelConfig(size=size)
        self.precision, self.dtype = precision, DTYPES[precision]
        self.model = MarianMTModel(
            MarianConfig(
                vocab_size=vocabulary,
                d_model=shape.dim,
                encoder_layers=shape.encoder_layers,
                decoder_layers=shape.decoder_layers,
                encoder_attention_heads=shape.num_heads,
                decoder_attention_heads=shape.num_heads,
                encoder_ffn_dim=shape.ff_dim,
                decoder_ffn_dim=shape.ff_dim,
                dropout=DROPOUT,
                attention_dropout=shape.attention_dropout,
                activation_dropout=shape.activation_dropout,
                activation_function="relu",
                scale_embedding=True,
                pad_token_id=PAD,
                eos_token_id=EOS,
                bos_token_id=BOS,
                decoder_start_token_id=BOS,
                forced_eos_token_id=None,
                max_position_embeddings=max_length,
            )
        ).to(device)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=0.0, fused=True)

    def loss(self, batch: Batch) -> Tensor:
        with autocast(batch.source.device, self.dtype):
            logits = self.model(
                input_ids=batch.source,
                attention_mask=(batch.source != PAD).long(),
                decoder_input_ids=batch.target_input,
                use_cache=False,
            ).logits
            return F.cross_entropy(
                logits.flatten(0, 1),
                batch.target_output.flatten(),
                ignore_index=PAD,
                label_smoothing=SMOOTHING,
            )

    def train(self, batch: Batch) -> None:
        self.model.train()
        self.loss(batch).backward()
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)

    @torch.inference_mode()
    def translate(self, source: Tensor, beam: int, steps: int) -> None:
        self.model.eval()
        if self.precision == "bf16":
            self.model.to(torch.bfloat16)
        under = torch.float32 if self.precision == "bf16" else self.dtype
        with autocast(source.device, under):
            made = self.model.generate(
                input_ids=source,
                attention_mask=(source != PAD).long(),
                num_beams=beam,
                do_sample=False,
                min_new_tokens=steps,
                max_new_tokens=steps,
            )
        assert made.shape[1] == steps + 1


def read_pairs(args: argparse.Namespace) -> list[tuple[str, str]]:
    if not args.text:
        return list(generate(30_000, seed=1))
    sides = [Path(x).read_text(encoding="utf-8").splitlines() for x in args.text]
    return list(zip(*sides, strict=True))


def prepare(args: argparse.Namespace) -> tuple[list[Batch], list[Tensor], int]:
    """Return batches for training, batches of 32 sources for decoding, and the vocabulary."""
    pairs = read_pairs(args)
    with tempfile.TemporaryDirectory() as folder:
        config = SubwordsConfig(vocab_size=args.vocabulary)
        subwords = Subwords.train(lambda: pairs, config, Path(folder))
    sources = subwords.encode_source([source for source, _ in pairs])
    targets = subwords.encode_target([target for _, target in pairs])
    lengths = [torch.tensor([len(x) for x in side]).numpy() for side in (sources, targets)]
    plan = plan_epoch(*lengths, BatchConfig(max_tokens=args.tokens), seed=1, epoch=0)
    batches = [
        make_batch([sources[i] for i in chosen], [targets[i] for i in chosen])
        for chosen in islice(plan, args.steps + 2)
    ]
    first = sorted(range(args.sentences), key=lambda i: len(sources[i]))
    decoded = [
        make_batch([sources[i] for i in first[at : at + 32]], [[]] * len(first[at : at + 32]))
        for at in range(0, len(first), 32)
    ]
    return batches, [batch.source for batch in decoded], subwords.source_size


def gemm_gflops(dtype: torch.dtype) -> float:
    """Return the best rate of a product of 1,024 x 1,024 matrices."""
    a, b = (torch.randn(1024, 1024).to(dtype) for _ in range(2))
    best = float("inf")
    for _ in range(20):
        began = time.perf_counter()
        a @ b
        best = min(best, time.perf_counter() - began)
    return 2 * 1024**3 / best / 1e9


def compare(args: argparse.Namespace) -> None:
    batches, sources, vocabulary = prepare(args)
    systems = {
        "shapeshift": Ours(args.size, vocabulary, args.precision, args.position),
        "marian": Marian(args.size, vocabulary, args.precision),
    }
    clock = time.process_time if args.processor_time else time.perf_counter
    times: dict[str, list[float]] = {name: [] for name in systems}
    work = batches if args.what == "training" else sources * args.repeats
    for number, item in enumerate(work):
        order = list(systems.items())
        for name, system in order if number % 2 else reversed(order):
            began = clock()
            if args.what == "training":
                system.train(item)
            else:
                system.translate(item, args.beam, args.forced_steps)
            times[name].append(clock() - began)
    warm = 2 if args.what == "training" else 1
    count = (
        [batch.num_source_tokens + batch.num_target_tokens for batch in batches]
        if args.what == "training"
        else [len(source) for source in work]
    )[warm:]
    unit = "tokens/s" if args.what == "training" else "sentences/s"
    rates = {name: sum(count) / sum(values[warm:]) for name, values in times.items()}
    ratios = [b / a for a, b in zip(*(values[warm:] for values in times.values()), strict=True)]
    low, middle, high = statistics.quantiles(ratios, n=4)
    what = args.what if args.what == "training" else f"decoding, beam {args.beam}"
    print(
        f"{what}, {args.size}, {args.precision}, {args.threads} thread(s), {len(ratios)} turns,"
        f" torch {torch.__version__}, {gemm_gflops(DTYPES[args.precision]):.0f} GFLOP/s"
        f"{', by processor time' if args.processor_time else ''}: shapeshift"
        f" {rates['shapeshift']:,.1f} {unit}, marian {rates['marian']:,.1f} {unit};"
        f" ratio {middle:.2f} ({low:.2f} to {high:.2f})"
    )


def apart(args: argparse.Namespace) -> None:
    """Print the speed of each system in processes of its own, ours as the command line starts."""
    trains = args.what == "training"
    if args.system is not None:
        system, batches, sources = read_work(args)
        warm = 2 if trains else 1
        for number, item in enumerate(batches if trains else sources):
            if number == warm:
                began = time.perf_counter()
            if trains:
                system.train(item)
            else:
                system.translate(item, args.beam, args.forced_steps)
        seconds = time.perf_counter() - began
        tokens = sum(batch.num_source_tokens + batch.num_target_tokens for batch in batches[warm:])
        print((tokens if trains else sum(map(len, sources[warm:]))) / seconds)
        return
    rounds = run_apart(args, args.repeats)
    ours, theirs = (statistics.median(rates) for rates in zip(*rounds, strict=True))
    ratios = sorted(one / other for one, other in rounds)
    what = "training" if trains else f"decoding, beam {args.beam}"
    unit = "tokens/s" if trains else "sentences/s"
    print(
        f"{what}, {args.size}, {args.precision}, {args.threads} thread(s), processes apart,"
        f" {args.repeats} rounds: shapeshift {ours:,.0f} {unit}, marian {theirs:,.0f} {unit};"
        f" ratio {statistics.median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})"
    )


def run_apart(args: argparse.Namespace, num_rounds: int) -> list[list[float]]:
    """Return what the processes print, ours and MarianMT's in each round. All have the same
    batches, which this process makes, so that theirs do nothing else."""
    batches, sources, vocabulary = prepare(args)
    with tempfile.TemporaryDirectory() as folder:
        file = str(Path(folder, "work.pt"))
        torch.save((vocabulary, [vars(batch) for batch in batches], sources), file)
        return [
            [float(run_alone(name, "--work", file)) for name in SYSTEMS] for _ in range(num_rounds)
        ]


def read_work(args: argparse.Namespace) -> tuple[Ours | Marian, list[Batch], list[Tensor]]:
    vocabulary, batches, sources = torch.load(args.work)
    return build_system(args, vocabulary), [Batch(**batch) for batch in batches], sources


def run_alone(system: str, *more: str) -> str:
    """Return what this program prints for one system in a process of its own."""
    command = [sys.executable, __file__, *sys.argv[1:], "--system", system, *more]
    own = SETTINGS if system == "shapeshift" else {}
    return subprocess.run(
        command, env=os.environ | own, stdout=subprocess.PIPE, text=True, check=True
    ).stdout


def build_system(args: argparse.Namespace, vocabulary: int) -> Ours | Marian:
    if args.system == "shapeshift":
        return Ours(args.size, vocabulary, args.precision, args.position)
    return Marian(args.size, vocabulary, args.precision)


def memory(args: argparse.Namespace) -> None:
    """Print the peak resident memory of training, each system in a process of its own."""
    if args.system is None:
        ours, theirs = (peak / 1024 for peak in run_apart(args, 1)[0])
        print(
            f"memory, {args.size}, {args.precision}, {args.threads} thread(s): shapeshift"
            f" {ours:,.0f} MiB, marian {theirs:,.0f} MiB; ratio {ours / theirs:.2f}"
        )
        return
    system, batches, _ = read_work(args)
    for batch in batches[:8]:
        system.train(batch)
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)


def peers(args: argparse.Namespace) -> None:
    """Print a table of the speed of all systems, each in processes of its own."""
    if args.system is not None:
        print(json.dumps(measure(args)))
        return
    for name in PEERS:
        if not (args.peers / name / "bin/python").exists():
            sys.exit(f"no {name} in {args.peers}; run: benchmarks/peers.sh {args.peers}")
    batches, sources, vocabulary = prepare(args)
    shape = ModelConfig(size=args.size)
    work = {
        "shape": (shape.encoder_layers, shape.dim, shape.num_heads, shape.ff_dim),
        "vocabulary": vocabulary,
        "batches": [
            (x.source, torch.cat([x.target_input[:, :1], x.target_output], 1)) for x in batches
        ],
        "sources": sources,
        "precision": args.precision,
        "threads": args.threads,
        "warm": 2,
        "dropout": DROPOUT,
        "smoothing": SMOOTHING,
        "lr": LR,
        "limits": (args.forced_steps, args.forced_steps),
    }
    count = {
        "training": sum(x.num_source_tokens + x.num_target_tokens for x in batches[2:]),
        **dict.fromkeys(("beam", "greedy"), sum(len(x) for x in sources[1:])),
    }
    rounds = []
    with tempfile.TemporaryDirectory() as folder:
        file = str(Path(folder, "work.pt"))
        torch.save(work, file)
        for _ in range(args.repeats):
            printed = {name: run_alone(name, "--work", file) for name in SYSTEMS}
            for name in PEERS:
                command = [args.peers / name / "bin/python", Path(__file__).parent / "peer.py"]
                printed[name] = subprocess.run(
                    [*command, name, file], stdout=subprocess.PIPE, text=True, check=True
                ).stdout
            rounds.append({name: json.loads(x.splitlines()[-1]) for name, x in printed.items()})
    print(
        f"{args.size}, {args.precision}, {args.threads} thread(s), {args.repeats} rounds,"
        f" torch {torch.__version__}, {gemm_gflops(DTYPES[args.precision]):.0f} GFLOP/s\n\n"
        "| system | parameters | loss | training, tokens/s | ours/its | beam 4, sentences/s"
        " | ours/its | greedy, sentences/s | ours/its |\n|---|---:|---|---:|---|---:|---|---:|---|"
    )
    for name, found in rounds[0].items():
        first, last = found["losses"]
        assert last < first, f"the loss of {name} does not fall: {first:.2f} to {last:.2f}"
        cells = [f"{PEERS.get(name, name)} {found['version']}", f"{found['parameters']:,}"]
        cells.append(f"{first:.2f} → {last:.2f}")
        for what, items in count.items():
            seconds = [x[name][what] for x in rounds]
            ratios = sorted(x[name][what] / x["shapeshift"][what] for x in rounds)
            cells.append(f"{items / statistics.median(seconds):,.0f}")
            cells.append(f"{statistics.median(ratios):.2f} ({ratios[0]:.2f}–{ratios[-1]:.2f})")
        print("|", " | ".join(cells), "|")


def measure(args: argparse.Namespace) -> dict[str, object]:
    """Return what `peer.py` prints, for ourselves or MarianMT."""
    work = torch.load(args.work)
    system = build_system(args, work["vocabulary"])
    for group in system.optimizer.param_groups:
        group["lr"] = LR

    def rows(ids: Tensor) -> list[list[int]]:
        return [row[(row != PAD) & (row != BOS)][:-1].tolist() for row in ids]

    batches = [make_batch(rows(source), rows(target)) for source, target in work["batches"]]
    losses = [system.loss(batches[0]).item()]
    for number, batch in enumerate(batches):
        if number == work["warm"]:
            began = time.perf_counter()
        system.train(batch)
    found: dict[str, object] = {"training": time.perf_counter() - began}
    losses.append(system.loss(batches[0]).item())
    parameters = sum(x.numel() for x in system.model.parameters() if x.requires_grad)
    package = "transformers" if args.system == "marian" else "shapeshift"
    system = build_system(args, work["vocabulary"])  # once trained, our search may end early
    for name, beam in (("beam", 4), ("greedy", 1)):
        for number, source in enumerate(work["sources"]):
            if number == 1:
                began = time.perf_counter()
            system.translate(source, beam, args.forced_steps)
        found[name] = time.perf_counter() - began
    version = importlib.metadata.version(package)
    return {**found, "losses": losses, "parameters": parameters, "version": version}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("what", choices=("training", "decoding", "memory", "peers"))
    parser.add_argument("--text", nargs=2, metavar=("SOURCE", "TARGET"), help="files, a side each")
    parser.add_argument("--size", default="small")
    parser.add_argument("--precision", default="fp32", choices=DTYPES)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--position", default="ape", choices=SCHEMES)
    parser.add_argument("--vocabulary", type=int, help="default: 8000, of the built-in corpus 7000")
    parser.add_argument("--tokens", type=int, default=4096, help="of a batch, padded")
    parser.add_argument("--steps", type=int, default=12, help="of training, measured")
    parser.add_argument("--sentences", type=int, default=200, help="to decode")
    parser.add_argument("--beam", type=int, default=4)
    parser.add_argument("--forced-steps", type=int, default=15)
    parser.add_argument("--repeats", type=int, default=3, help="of decoding, --apart and peers")
    parser.add_argument("--apart", action="store_true", help="in processes of their own")
    parser.add_argument(
        "--processor-time", action="store_true", help="not wall time: for a busy machine, 1 thread"
    )
    parser.add_argument("--peers", type=Path, default=Path(".peers"), help="of peers.sh")
    parser.add_argument("--work", help=argparse.SUPPRESS)
    parser.add_argument("--system", choices=SYSTEMS, help=argparse.SUPPRESS)
    args = parser.parse_args()
    args.vocabulary = args.vocabulary or (8000 if args.text else 7000)
    torch.set_num_threads(args.threads)
    torch.manual_seed(1)
    together = args.what == "training" and not args.apart
    trains = args.what != "decoding"
    if (args.system == "shapeshift" and trains) or together:
        tune_cpu()  # not where others are measured by themselves: processes inherit a part of it
    if args.apart and (args.what not in ("training", "decoding") or args.processor_time):
        parser.error("--apart is for training and decoding, by wall time")
    if args.what == "peers" and args.precision == "autocast":
        parser.error("peers takes --precision fp32 or bf16")
    {"memory": memory, "peers": peers}.get(args.what, apart if args.apart else compare)(args)


if __name__ == "__main__":
    main()
