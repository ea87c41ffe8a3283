"""fairseq 0.12 (Ott et al. 2019)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from shapeshift.data.config import SPLITS
from shapeshift.decoding.config import AveragePenalty, GnmtPenalty
from shapeshift.disk import save
from shapeshift.errors import ShapeshiftError
from shapeshift.lab.toolkits import average_fairseq
from shapeshift.lab.toolkits.baseline import TEST_SPLITS, Baseline, TestSplit, Toolkit
from shapeshift.lab.toolkits.commands import Command, interpreter

_PROGRAMS = ("fairseq-preprocess", "fairseq-train", "fairseq-generate")


def _commands(run: Baseline, programs: Mapping[str, Path]) -> list[Command]:
    preprocess, train, generate = (str(programs[name]) for name in _PROGRAMS)
    binary, saved = str(run.directory / "binary"), run.directory / "checkpoints"
    final = run.directory / "average.pt"
    # Python first looks for modules in the folder of the script, where `fairseq` would be this
    # file.
    script = run.directory / "average.py"
    save(script, Path(average_fairseq.__file__).read_bytes())
    python = interpreter(programs["fairseq-train"])
    average = (python, str(script), str(saved), str(len(run.saved_updates)), str(final))
    hardware = () if run.gpu else ("--cpu",)
    commands = [
        Command("preprocess", (preprocess, *_preprocessing(run, binary))),
        Command("train", (train, binary, "--save-dir", str(saved), *hardware, *_training(run))),
        Command("average", average),
    ]
    for split in TEST_SPLITS:
        search = ("--gen-subset", split, "--path", str(final), *hardware, *_search(run))
        output = run.directory / f"{split}.out"
        commands.append(Command(f"translate-{split}", (generate, binary, *search), output))
    return commands


def _translations(run: Baseline, split: TestSplit) -> list[str]:
    lines: dict[int, str] = {}
    for line in (run.directory / f"{split}.out").read_text(encoding="utf-8").split("\n"):
        if line.startswith("H-"):  # H-NUMBER, score, tokens; in the order of lengths
            number, _, tokens = line.removeprefix("H-").split("\t")
            lines[int(number)] = tokens
    return [lines[number] for number in sorted(lines)]


FAIRSEQ = Toolkit(
    "fairseq",
    _PROGRAMS,
    "pip install fairseq==0.12.2 torch==1.12.1 torchaudio==0.12.1 'numpy<1.24' (Python 3.10 at"
    " most)",
    _commands,
    _translations,
)


def _preprocessing(run: Baseline, binary: str) -> list[str]:
    text = run.text.directory
    for side, tokens in run.text.vocabularies.items():
        # Numbers of occurrences are needed for nothing once the order is given.
        lines = "".join(f"{token} 1\n" for token in tokens)
        save(run.directory / f"dict.{side}.txt", lines)
    target = ["--tgtdict", str(run.directory / "dict.tgt.txt")]
    vocabulary = ["--srcdict", str(run.directory / "dict.src.txt")]
    vocabulary += ["--joined-dictionary"] if run.text.joint else target
    prefixes = [x for split in SPLITS for x in (f"--{split}pref", f"{text}/{split}")]
    languages = ["--source-lang", "src", "--target-lang", "tgt"]
    return [*languages, *prefixes, *vocabulary, "--destdir", binary]


def _training(run: Baseline) -> list[str]:
    model, training = run.config.model, run.config.training
    beta1, beta2 = training.optimizer.betas
    options: dict[str, object] = {
        "--arch": "transformer",
        "--activation-fn": model.activation,
        "--dropout": model.dropout,
        "--attention-dropout": model.attention_dropout,
        "--activation-dropout": model.activation_dropout,
        "--optimizer": "adam",
        "--adam-betas": f"({beta1}, {beta2})",
        "--adam-eps": training.optimizer.eps,
        # Noam is the same curve, given by its factor; fairseq takes the peak.
        "--lr-scheduler": "inverse_sqrt",
        "--lr": run.peak,
        "--warmup-updates": run.warmup_updates,
        "--criterion": "label_smoothed_cross_entropy",
        "--label-smoothing": training.label_smoothing,
        "--clip-norm": training.clip_norm or 0.0,
        # Counted as ours: sentences times the longer side of the longest pair.
        "--max-tokens": training.batch.max_tokens,
        "--update-freq": training.accumulation,
        "--max-update": training.max_updates,
        "--save-interval-updates": training.checkpoint_every,
        "--keep-interval-updates": training.average_checkpoints,
        "--log-interval": training.log_every,
        "--seed": training.seed,
        "--log-format": "simple",
    }
    for side in ("encoder", "decoder"):
        options |= {
            f"--{side}-embed-dim": model.dim,
            f"--{side}-ffn-embed-dim": model.ff_dim,
            f"--{side}-attention-heads": model.num_heads,
            f"--{side}-layers": getattr(model, f"{side}_layers"),
        }
    if training.batch.max_sentences is not None:
        options["--batch-size"] = training.batch.max_sentences
    switches = ["--no-epoch-checkpoints"]
    if model.norm == "pre":  # with a final LayerNorm of each stack, as ours
        switches += ["--encoder-normalize-before", "--decoder-normalize-before"]
    if model.share_embeddings and model.tie_output:
        switches.append("--share-all-embeddings")
    elif model.share_embeddings:
        raise ShapeshiftError(
            "fairseq shares the embeddings with the output or not at all; set model.tie_output=true"
        )
    elif model.tie_output:
        switches.append("--share-decoder-input-output-embed")
    return [*(str(part) for option in options.items() for part in option), *switches]


def _search(run: Baseline) -> list[str]:
    decoding = run.config.decoding
    penalty = decoding.length_penalty
    options: dict[str, object] = {
        "--beam": decoding.beam,
        "--max-len-a": decoding.max_length_a,
        "--max-len-b": int(decoding.max_length_b),  # it takes whole numbers alone
        "--max-tokens": decoding.max_tokens,
    }
    switches: list[str] = []
    if isinstance(penalty, GnmtPenalty):  # divides by n^a, not by ((5 + n) / 6)^a
        options["--lenpen"] = penalty.alpha
    elif isinstance(penalty, AveragePenalty):
        options["--lenpen"] = 1.0
    else:
        switches.append("--unnormalized")
    return [*(str(part) for option in options.items() for part in option), *switches]
