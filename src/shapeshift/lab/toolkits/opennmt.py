"""OpenNMT-py 3 (Klein et al. 2017), the authors' toolkit, of a later version."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from shapeshift.data.config import Split
from shapeshift.decoding.config import AveragePenalty, GnmtPenalty
from shapeshift.disk import save
from shapeshift.errors import ShapeshiftError
from shapeshift.lab.toolkits.baseline import TEST_SPLITS, Baseline, TestSplit, Toolkit
from shapeshift.lab.toolkits.commands import Command
from shapeshift.lab.toolkits.export import SIDES

_LONGEST = 1000
_TRAINING_SPLITS: tuple[Split, Split] = ("train", "valid")


_PROGRAMS = ("onmt_train", "onmt_average_models", "onmt_translate")


def _commands(run: Baseline, programs: Mapping[str, Path]) -> list[Command]:
    train, average, translate = (str(programs[name]) for name in _PROGRAMS)
    final = run.directory / "average.pt"
    settings = run.directory / "train.yaml"
    save(settings, yaml.safe_dump(_settings(run), sort_keys=False))
    models = [str(run.directory / f"model_step_{x}.pt") for x in run.saved_updates]
    commands = [
        Command("train", (train, "-config", str(settings))),
        Command("average", (average, "-models", *models, "-output", str(final))),
    ]
    for split in TEST_SPLITS:
        source, output = run.text.file(split, "src"), run.directory / split
        files = ("-model", str(final), "-src", str(source), "-output", str(output))
        commands.append(Command(f"translate-{split}", (translate, *files, *_search(run))))
    return commands


def _translations(run: Baseline, split: TestSplit) -> list[str]:
    return (run.directory / split).read_text(encoding="utf-8").split("\n")[:-1]


OPENNMT = Toolkit(
    "OpenNMT-py", _PROGRAMS, "pip install OpenNMT-py==3.5.1", _commands, _translations
)


def _settings(run: Baseline) -> dict[str, Any]:
    model = run.config.model
    if model.norm != "pre":
        raise ShapeshiftError("OpenNMT-py normalises before each sublayer; set model.norm=pre")
    return {
        **_text_settings(run),
        "share_embeddings": run.text.joint and model.share_embeddings,
        "share_decoder_embeddings": model.tie_output,
        "encoder_type": "transformer",
        "decoder_type": "transformer",
        "enc_layers": model.encoder_layers,
        "dec_layers": model.decoder_layers,
        "hidden_size": model.dim,
        "word_vec_size": model.dim,
        "heads": model.num_heads,
        "transformer_ff": model.ff_dim,
        "pos_ffn_activation_fn": model.activation,
        "position_encoding": True,
        "add_qkvbias": True,
        "param_init": 0.0,
        "param_init_glorot": True,
        **_training_settings(run),  # its epsilon is 1e-8
        "save_model": str(run.directory / "model"),
    }


def _text_settings(run: Baseline) -> dict[str, Any]:
    """Write the vocabularies; return where all text is."""
    for side, tokens in run.text.vocabularies.items():
        lines = "".join(f"{token}\n" for token in tokens)
        save(run.directory / f"vocabulary.{side}", lines)
    return {
        "data": {
            split: {f"path_{side}": str(run.text.file(split, side)) for side in SIDES}
            for split in _TRAINING_SPLITS
        },
        **{f"{side}_vocab": str(run.directory / f"vocabulary.{side}") for side in SIDES},
        **{f"{side}_vocab_size": len(v) + 8 for side, v in run.text.vocabularies.items()},
        "share_vocab": run.text.joint,
        "seed": run.config.training.seed,
        "report_every": run.config.training.log_every,
    }


def _training_settings(run: Baseline) -> dict[str, Any]:
    """Return how to train."""
    model, training = run.config.model, run.config.training
    sentences = training.batch.max_sentences
    return {
        # Its one rate is for residual branches, embeddings and the feed-forward layers' inside.
        "dropout": [model.dropout],
        "attention_dropout": [model.attention_dropout],
        "optim": "adam",
        "adam_beta1": training.optimizer.betas[0],
        "adam_beta2": training.optimizer.betas[1],
        # Given by the factor of Noam's curve, which the inverse square root is, too.
        "decay_method": "noam",
        "learning_rate": run.noam_factor,
        "warmup_steps": run.warmup_updates,
        "label_smoothing": training.label_smoothing,
        "max_grad_norm": training.clip_norm or 0.0,
        "normalization": "tokens",
        # With `tokens`: sentences times the longer side of the longest pair, as ours.
        "batch_type": "tokens" if sentences is None else "sents",
        "batch_size": training.batch.max_tokens if sentences is None else sentences,
        # Pairs that are sorted by length together. It fills what is larger than the text with the
        # text again and again.
        "bucket_size": min(training.batch.sort_window or run.text.num_train, run.text.num_train),
        "accum_count": [training.accumulation],
        "accum_steps": [0],
        "train_steps": training.max_updates,
        "valid_steps": training.checkpoint_every,
        "save_checkpoint_steps": training.checkpoint_every,
        "keep_checkpoint": training.average_checkpoints,
        "num_workers": 0,
        **({"world_size": 1, "gpu_ranks": [0]} if run.gpu else {}),
    }


def _search(run: Baseline) -> list[str]:
    """Return the options of translating."""
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
        "gpu": 0 if run.gpu else -1,
    }
    if isinstance(penalty, GnmtPenalty):
        options |= {"length_penalty": "wu", "alpha": penalty.alpha}
    elif isinstance(penalty, AveragePenalty):
        options["length_penalty"] = "avg"
    return [part for name, value in options.items() for part in (f"-{name}", str(value))]
