"""Eole 0.6, which carries OpenNMT-py on."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from shapeshift.errors import ShapeshiftError
from shapeshift.experiments.files import write_whole
from shapeshift.experiments.toolkits import average_eole
from shapeshift.experiments.toolkits.baseline import TEST_SPLITS, Baseline, TestSplit
from shapeshift.experiments.toolkits.commands import Command, interpreter
from shapeshift.experiments.toolkits.opennmt import (
    lines_of,
    on_gpu,
    search_settings,
    text_settings,
    training_settings,
    write_settings,
)


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
        settings = write_settings(run.directory / "train.yaml", self._settings(run))
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
            settings = write_settings(
                run.directory / f"{split}.yaml", files | search_settings(run) | on_gpu(run)
            )
            commands.append(
                Command(f"translate-{split}", (str(eole), "predict", "-config", settings))
            )
        return commands

    def translations(self, run: Baseline, split: TestSplit) -> list[str]:
        """See `baseline.Toolkit`."""
        return lines_of(run, split)

    def _settings(self, run: Baseline) -> dict[str, Any]:
        model, training = run.config.model, run.config.training
        if model.norm != "pre":
            raise ShapeshiftError("Eole normalises before each sublayer; set model.norm=pre")
        return {
            **text_settings(run),
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
                **training_settings(run),
                "model_path": str(run.directory / "model"),
                "param_init_method": "xavier_uniform",
                "adam_eps": training.optimizer.eps,
                "log_attention_entropy": False,  # which attention would be slower for
            },
        }
