"""fairseq 0.12 (Ott et al. 2019)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from shapeshift._system.errors import ShapeshiftError
from shapeshift._system.files import MAX_FILE, read, save
from shapeshift.data.config import SPLITS
from shapeshift.decoding.config import AveragePenalty, GnmtPenalty
from shapeshift.run.toolkits import average_fairseq
from shapeshift.run.toolkits.baseline import TEST_SPLITS, Baseline, Commands, TestSplit, Toolkit

_PROGRAMS = ("fairseq-preprocess", "fairseq-train", "fairseq-generate")
Options = dict[str, object]
"""Option → its value; `None` for a switch."""


def _commands(run: Baseline, programs: Mapping[str, str]) -> Commands:
    preprocess, train, generate = (programs[name] for name in _PROGRAMS)
    binary, saved = str(run.directory / "binary"), str(run.directory / "checkpoints")
    final = str(run.directory / "average.pt")
    hardware = [] if run.gpu else ["--cpu"]
    # The Python that has fairseq, by the first line of its programs.
    python = Path(train).read_text(encoding="utf-8").split("\n")[0].removeprefix("#!").strip()
    average = Path(average_fairseq.__file__).read_text(encoding="utf-8")
    commands = {
        "preprocess": [preprocess, *_words(_preprocessing(run) | {"--destdir": binary})],
        "train": [train, binary, "--save-dir", saved, *hardware, *_words(_training(run))],
        "average": [python, "-c", average, saved, str(len(run.saved_updates)), final],
    }
    for split in TEST_SPLITS:
        options = _search(run) | {"--gen-subset": split, "--path": final}
        options["--results-path"] = run.directory
        commands[f"translate-{split}"] = [generate, binary, *hardware, *_words(options)]
    return commands


def _translations(run: Baseline, split: TestSplit) -> list[str]:
    lines: dict[int, str] = {}
    found = read(run.directory / f"generate-{split}.txt", MAX_FILE).decode()
    for line in found.split("\n"):
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


def _words(options: Options) -> list[str]:
    return [str(word) for option in options.items() for word in option if word is not None]


def _preprocessing(run: Baseline) -> Options:
    for side, tokens in run.vocabularies.items():
        # Numbers of occurrences are needed for nothing once the order is given.
        lines = "".join(f"{token} 1\n" for token in tokens)
        save(run.directory / f"dict.{side}.txt", lines)
    options: Options = {"--source-lang": "src", "--target-lang": "tgt"}
    options |= {f"--{split}pref": run.text / split for split in SPLITS}
    options["--srcdict"] = run.directory / "dict.src.txt"
    if run.data.subwords.joint:
        return options | {"--joined-dictionary": None}
    return options | {"--tgtdict": run.directory / "dict.tgt.txt"}


def _training(run: Baseline) -> Options:
    model, training = run.config.model, run.config.training
    beta1, beta2 = training.optimizer.betas
    options: Options = {
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
        "--warmup-updates": training.schedule.warmup_updates,
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
        "--no-epoch-checkpoints": None,
    }
    for side in ("encoder", "decoder"):
        options |= {
            f"--{side}-embed-dim": model.dim,
            f"--{side}-ffn-embed-dim": model.ff_dim,
            f"--{side}-attention-heads": model.num_heads,
            f"--{side}-layers": getattr(model, f"{side}_layers"),
        }
        if model.norm == "pre":  # with a final LayerNorm of each stack, as ours
            options[f"--{side}-normalize-before"] = None
    if training.batch.max_sentences is not None:
        options["--batch-size"] = training.batch.max_sentences
    if model.share_embeddings and not model.tie_output:
        raise ShapeshiftError(
            "fairseq shares the embeddings with the output or not at all; set model.tie_output=true"
        )
    if model.tie_output:
        shared = "all-embeddings" if model.share_embeddings else "decoder-input-output-embed"
        options[f"--share-{shared}"] = None
    return options


def _search(run: Baseline) -> Options:
    decoding = run.config.decoding
    penalty = decoding.length_penalty
    options: Options = {
        "--beam": decoding.beam,
        "--max-len-a": decoding.max_length_a,
        "--max-len-b": int(decoding.max_length_b),  # it takes whole numbers alone
        "--max-tokens": decoding.max_tokens,
    }
    if isinstance(penalty, GnmtPenalty):  # divides by n^a, not by ((5 + n) / 6)^a
        options["--lenpen"] = penalty.alpha
    elif isinstance(penalty, AveragePenalty):
        options["--lenpen"] = 1.0
    else:
        options["--unnormalized"] = None
    return options
