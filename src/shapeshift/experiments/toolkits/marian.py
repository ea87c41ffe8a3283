"""Marian 1.12 (Junczys-Dowmunt et al. 2018)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from shapeshift.decoding.config import AveragePenalty, GnmtPenalty
from shapeshift.errors import ShapeshiftError
from shapeshift.experiments.files import write_whole
from shapeshift.experiments.toolkits.baseline import TEST_SPLITS, Baseline, TestSplit
from shapeshift.experiments.toolkits.commands import Command
from shapeshift.experiments.toolkits.export import SIDES, Side


class Marian:
    """See `baseline.Toolkit`."""

    name = "Marian"
    programs: tuple[str, ...] = ("marian", "marian-decoder")
    install = "build it from https://github.com/marian-nmt/marian and put it on the PATH"

    def commands(self, run: Baseline, programs: Mapping[str, Path]) -> list[Command]:
        """See `baseline.Toolkit`."""
        train, decode = (str(programs[name]) for name in self.programs)
        vocabularies = [str(self._vocabulary(run, side)) for side in SIDES]
        model = str(run.directory / "model.npz")
        hardware = ["--devices", "0"] if run.gpu else ["--cpu-threads", "1"]
        training = ["--model", model, "--vocabs", *vocabularies, *hardware, *_training(run)]
        commands = [Command("train", (train, *training))]
        for split in TEST_SPLITS:
            files = ["--input", str(run.text.file(split, "src"))]
            files += ["--output", str(run.directory / split)]
            search = ["--models", model, "--vocabs", *vocabularies, *hardware, *_search(run)]
            commands.append(Command(f"translate-{split}", (decode, *search, *files)))
        return commands

    def translations(self, run: Baseline, split: TestSplit) -> list[str]:
        """See `baseline.Toolkit`."""
        return (run.directory / split).read_text(encoding="utf-8").split("\n")[:-1]

    def _vocabulary(self, run: Baseline, side: Side) -> Path:
        """Write the tokens of a side with their numbers. One file serves both, if they share it."""
        path = run.directory / ("joint.yml" if run.text.joint else f"{side}.yml")
        tokens = ["</s>", "<unk>", *run.text.vocabularies[side]]
        lines = "".join(f'"{token}": {number}\n' for number, token in enumerate(tokens))
        write_whole(path, lines.encode())
        return path


def _training(run: Baseline) -> list[str]:
    model, training = run.config.model, run.config.training
    optimizer = training.optimizer
    pre = model.norm == "pre"
    options: dict[str, object] = {
        "--type": "transformer",
        "--dim-emb": model.dim,
        "--transformer-dim-ffn": model.ff_dim,
        "--transformer-heads": model.num_heads,
        "--transformer-ffn-activation": model.activation,
        "--enc-depth": model.encoder_layers,
        "--dec-depth": model.decoder_layers,
        # n: normalise, d: dropout, a: add the residual; before and after a sublayer.
        "--transformer-preprocess": "n" if pre else "",
        "--transformer-postprocess": "da" if pre else "dan",
        "--transformer-postprocess-emb": "d",
        "--transformer-postprocess-top": "n" if pre else "",
        "--transformer-dropout": model.dropout,
        "--transformer-dropout-attention": model.attention_dropout,
        "--transformer-dropout-ffn": model.activation_dropout,
        "--optimizer": "adam",
        # Noam is the same curve, told by its factor; Marian wants the peak.
        "--learn-rate": run.peak,
        "--lr-warmup": run.warmup_updates,
        "--lr-decay-inv-sqrt": run.warmup_updates,
        "--label-smoothing": training.label_smoothing,
        "--clip-norm": training.clip_norm or 0.0,
        "--cost-type": "ce-mean-words",
        # Words of the target, without padding: the nearest that it has to our padded tokens.
        "--mini-batch-words": training.batch.max_tokens,
        "--optimizer-delay": training.accumulation,
        "--after": f"{training.max_updates}u",
        "--save-freq": f"{training.checkpoint_every}u",
        "--disp-freq": f"{training.log_every}u",
        # It averages while it trains, and not after: this takes the place of the last checkpoints.
        "--exponential-smoothing": 1e-4,
        "--max-length": 1000,
        "--seed": training.seed,
    }
    if training.batch.max_sentences is not None:
        options["--mini-batch"] = training.batch.max_sentences
    if model.share_embeddings and not model.tie_output:
        raise ShapeshiftError(
            "Marian shares the embeddings with the output or not at all; set model.tie_output=true"
        )
    switches = []
    if model.tie_output:
        switches.append("--tied-embeddings-all" if model.share_embeddings else "--tied-embeddings")
    texts = ["--train-sets", *(str(run.text.file("train", side)) for side in SIDES)]
    betas = [*map(str, optimizer.betas), str(optimizer.eps)]
    pairs = [str(part) for option in options.items() for part in option]
    return [*texts, *pairs, "--optimizer-params", *betas, *switches]


def _search(run: Baseline) -> list[str]:
    decoding = run.config.decoding
    penalty = decoding.length_penalty
    options: dict[str, object] = {
        "--beam-size": decoding.beam,
        "--mini-batch-words": decoding.max_tokens,
        # Its limit is a multiple of the source's length, without a constant.
        "--max-length-factor": decoding.max_length_a + 1,
        "--max-length": 1000,
    }
    if isinstance(penalty, GnmtPenalty):  # divides by n^a, not by ((5 + n) / 6)^a
        options["--normalize"] = penalty.alpha
    elif isinstance(penalty, AveragePenalty):
        options["--normalize"] = 1.0
    return [str(part) for option in options.items() for part in option]
