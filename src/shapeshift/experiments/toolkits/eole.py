"""Eole 0.6, which carries OpenNMT-py on."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from shapeshift.decoding.config import AveragePenalty, GnmtPenalty
from shapeshift.errors import ShapeshiftError
from shapeshift.experiments.files import write_whole
from shapeshift.experiments.toolkits import average_eole
from shapeshift.experiments.toolkits.baseline import TEST_SPLITS, Baseline, TestSplit
from shapeshift.experiments.toolkits.commands import Command, interpreter
from shapeshift.experiments.toolkits.export import SIDES

_LONGEST = 1000


class Eole:
    """See `baseline.Toolkit`.

    Differs from ours in what it has no setting for: a batch has each source once, and matrices,
    embeddings among them, begin by Xavier.
    """

    name = "Eole"
    programs: tuple[str, ...] = ("eole",)
    install = "pip install eole==0.6.4 aiohttp (Python 3.11 or later)"

    def commands(self, run: Baseline, programs: Mapping[str, Path]) -> list[Command]:
        """See `baseline.Toolkit`."""
        eole = programs["eole"]
        final = run.directory / "average"
        script = run.directory / "average.py"
        write_whole(script, Path(average_eole.__file__).read_bytes())
        models = [str(run.directory / "model" / f"step_{x}") for x in run.saved_updates]
        settings = _write(run.directory / "train.yaml", self._training(run))
        commands = [
            Command("train", (str(eole), "train", "-config", settings)),
            Command("average", (interpreter(eole), str(script), str(final), *models)),
        ]
        for split in TEST_SPLITS:
            files = {
                "model_path": str(final),
                "src": str(run.text.file(split, "src")),
                "output": str(run.directory / split),
            }
            settings = _write(run.directory / f"{split}.yaml", files | _search(run))
            commands.append(
                Command(f"translate-{split}", (str(eole), "predict", "-config", settings))
            )
        return commands

    def translations(self, run: Baseline, split: TestSplit) -> list[str]:
        """See `baseline.Toolkit`."""
        return (run.directory / split).read_text(encoding="utf-8").split("\n")[:-1]

    def _training(self, run: Baseline) -> dict[str, Any]:
        model, training = run.config.model, run.config.training
        if model.norm != "pre":
            raise ShapeshiftError("Eole normalises before each sublayer; set model.norm=pre")
        for side, tokens in run.text.vocabularies.items():
            lines = "".join(f"{token}\n" for token in tokens)
            write_whole(run.directory / f"vocabulary.{side}", lines.encode())
        sentences = training.batch.max_sentences
        return {
            "data": {
                split: {f"path_{side}": str(run.text.file(split, side)) for side in SIDES}
                for split in ("train", "valid")
            },
            "src_vocab": str(run.directory / "vocabulary.src"),
            "tgt_vocab": str(run.directory / "vocabulary.tgt"),
            **{f"{side}_vocab_size": len(v) + 8 for side, v in run.text.vocabularies.items()},
            "share_vocab": run.text.joint,
            "seed": training.seed,
            "report_every": training.log_every,
            "model": {
                "architecture": "transformer",
                "encoder": {"layers": model.encoder_layers},
                "decoder": {"layers": model.decoder_layers},
                "hidden_size": model.dim,
                "heads": model.num_heads,
                "transformer_ff": model.ff_dim,
                "mlp_activation_fn": model.activation,
                "add_qkvbias": True,
                "add_final_linear_bias": True,  # told by hand, or the encoder learns without
                "add_ffnbias": True,
                "generator_bias": False,
                "share_embeddings": run.text.joint and model.share_embeddings,
                "share_decoder_embeddings": model.tie_output,
                "embeddings": {"word_vec_size": model.dim, "position_encoding": True},
            },
            "training": {
                "model_path": str(run.directory / "model"),
                # Its one rate is for residual branches, embeddings and the feed-forward layers'
                # inside.
                "dropout": [model.dropout],
                "attention_dropout": [model.attention_dropout],
                "param_init_method": "xavier_uniform",
                "optim": "adam",
                "adam_beta1": training.optimizer.betas[0],
                "adam_beta2": training.optimizer.betas[1],
                "adam_eps": training.optimizer.eps,
                # Told by the factor of Noam's curve, which the inverse square root is, too.
                "decay_method": "noam",
                "learning_rate": run.noam_factor,
                "warmup_steps": run.warmup_updates,
                "label_smoothing": training.label_smoothing,
                "max_grad_norm": training.clip_norm or 0.0,
                "normalization": "tokens",
                # With `tokens`: sentences times the longer side of the longest pair, as ours.
                "batch_type": "tokens" if sentences is None else "sents",
                "batch_size": training.batch.max_tokens if sentences is None else sentences,
                # Pairs that are sorted by length together.
                "bucket_size": min(training.batch.window or run.text.num_train, run.text.num_train),
                "accum_count": [training.accumulation],
                "accum_steps": [0],
                "train_steps": training.max_updates,
                "valid_steps": training.checkpoint_every,
                "save_checkpoint_steps": training.checkpoint_every,
                "keep_checkpoint": training.average_checkpoints,
                "num_workers": 0,
                "log_attention_entropy": False,  # which attention would be slower for
                **_hardware(run),
            },
        }


def _search(run: Baseline) -> dict[str, Any]:
    decoding = run.config.decoding
    penalty = decoding.length_penalty
    options: dict[str, Any] = {
        "beam_size": decoding.beam,
        # Its limit is floor(a S + 5) tokens.
        "max_length": _LONGEST,
        "max_length_ratio": decoding.max_length_a,
        "batch_type": "tokens",
        "batch_size": decoding.max_tokens,
        "length_penalty": "none",
        **_hardware(run),
    }
    if isinstance(penalty, GnmtPenalty):
        options |= {"length_penalty": "wu", "alpha": penalty.alpha}
    elif isinstance(penalty, AveragePenalty):
        options["length_penalty"] = "avg"
    return options


def _hardware(run: Baseline) -> dict[str, Any]:
    return {"world_size": 1, "gpu_ranks": [0]} if run.gpu else {}


def _write(path: Path, settings: Mapping[str, Any]) -> str:
    write_whole(path, yaml.safe_dump(dict(settings), sort_keys=False).encode())
    return str(path)
