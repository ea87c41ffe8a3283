"""OpenNMT-py 3 (Klein et al. 2017), the authors' toolkit, of a later version."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import yaml

from shapeshift._system.errors import ShapeshiftError
from shapeshift._system.files import MAX_FILE, read, save
from shapeshift.decoding.config import AveragePenalty, GnmtPenalty
from shapeshift.run.toolkits.baseline import SIDES, TEST_SPLITS, Baseline, Commands, Toolkit

_LONGEST = 1000
_PROGRAMS = ("onmt_train", "onmt_average_models", "onmt_translate")


def _commands(run: Baseline, programs: Mapping[str, str]) -> Commands:
    train, average, translate = (programs[name] for name in _PROGRAMS)
    final, settings = str(run.directory / "average.pt"), run.directory / "train.yaml"
    for side, tokens in run.vocabularies.items():
        lines = "".join(f"{token}\n" for token in tokens)
        save(run.directory / f"vocabulary.{side}", lines)
    save(settings, yaml.safe_dump(_settings(run), sort_keys=False))
    models = [str(run.directory / f"model_step_{x}.pt") for x in run.saved_updates]
    commands = {
        "train": [train, "-config", str(settings)],
        "average": [average, "-models", *models, "-output", final],
    }
    for split in TEST_SPLITS:
        options = _search(run) | {
            "model": final,
            "src": run.text / f"{split}.src",
            "output": run.directory / split,
        }
        words = [x for name, value in options.items() for x in (f"-{name}", str(value))]
        commands[f"translate-{split}"] = [translate, *words]
    return commands


OPENNMT = Toolkit(
    "OpenNMT-py",
    _PROGRAMS,
    "pip install OpenNMT-py==3.5.1",
    _commands,
    lambda run, split: read(run.directory / split, MAX_FILE).decode().split("\n")[:-1],
)


def _settings(run: Baseline) -> dict[str, Any]:
    model, training, joint = run.config.model, run.config.training, run.data.subwords.joint
    if model.norm != "pre":
        raise ShapeshiftError("OpenNMT-py normalises before each sublayer; set model.norm=pre")
    sentences, warmup = training.batch.max_sentences, training.schedule.warmup_updates
    num_train = len(run.data.train)
    return {
        "data": {
            split: {f"path_{side}": str(run.text / f"{split}.{side}") for side in SIDES}
            for split in ("train", "valid")
        },
        **{f"{side}_vocab": str(run.directory / f"vocabulary.{side}") for side in SIDES},
        **{f"{side}_vocab_size": len(v) + 8 for side, v in run.vocabularies.items()},
        "share_vocab": joint,
        "seed": training.seed,
        "report_every": training.log_every,
        "share_embeddings": joint and model.share_embeddings,
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
        # Its one rate is for residual branches, embeddings and the feed-forward layers' inside.
        "dropout": [model.dropout],
        "attention_dropout": [model.attention_dropout],
        "optim": "adam",  # its epsilon is 1e-8
        "adam_beta1": training.optimizer.betas[0],
        "adam_beta2": training.optimizer.betas[1],
        # Given by the factor of Noam's curve, which the inverse square root is, too.
        "decay_method": "noam",
        "learning_rate": float(run.peak * (model.dim * warmup) ** 0.5),
        "warmup_steps": warmup,
        "label_smoothing": training.label_smoothing,
        "max_grad_norm": training.clip_norm or 0.0,
        "normalization": "tokens",
        # With `tokens`: sentences times the longer side of the longest pair, as ours.
        "batch_type": "tokens" if sentences is None else "sents",
        "batch_size": training.batch.max_tokens if sentences is None else sentences,
        # Pairs that are sorted by length together. It fills what is larger than the text with the
        # text again and again.
        "bucket_size": min(training.batch.sort_window or num_train, num_train),
        "accum_count": [training.accumulation],
        "accum_steps": [0],
        "train_steps": training.max_updates,
        "valid_steps": training.checkpoint_every,
        "save_checkpoint_steps": training.checkpoint_every,
        "keep_checkpoint": training.average_checkpoints,
        "num_workers": 0,
        **({"world_size": 1, "gpu_ranks": [0]} if run.gpu else {}),
        "save_model": str(run.directory / "model"),
    }


def _search(run: Baseline) -> dict[str, Any]:
    decoding = run.config.decoding
    penalty = decoding.length_penalty
    options = {
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
        return options | {"length_penalty": "wu", "alpha": penalty.alpha}
    if isinstance(penalty, AveragePenalty):
        return options | {"length_penalty": "avg"}
    return options
