"""Exports of a trained run, and whether they compute what its model does."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Literal, get_args

from shapeshift.conformance import Finding
from shapeshift.data.prepared import REPORT_OF_RUN
from shapeshift.data.prepared import Report as DataReport
from shapeshift.errors import ShapeshiftError
from shapeshift.export import ctranslate2, huggingface, onnx
from shapeshift.export.folder import Report
from shapeshift.export.parity import ParityError
from shapeshift.export.trained import Trained
from shapeshift.integrity import hash_file
from shapeshift.lab.card import model_card
from shapeshift.lab.run import SUBWORDS, Run

Engine = Literal["ctranslate2", "huggingface", "onnx"]
ENGINES: tuple[Engine, ...] = get_args(Engine)


def export_run(
    run: Run,
    to: Engine,
    target: Path,
    *,
    quantization: str | None = None,
    checkpoint: str = "average",
    max_length: int = 1024,
) -> Report:
    """Write a run's model for another engine, checked.

    Args:
        run: trained.
        to: the engine.
        target: a folder, missing or empty.
        quantization: of the weights, for CTranslate2.
        checkpoint: weights, see `Run.weights`.
        max_length: the most tokens of a sentence, where the engine needs a number and the model has
            no limit of its own.

    Raises:
        ShapeshiftError: the engine is not installed or cannot compute the model exactly; the folder
            holds something.
        ParityError: the exported model does not compute what the run's does.
    """
    data = DataReport.read(run.directory / REPORT_OF_RUN, "train again in a new folder")
    lengths = (64, 64)  # of an imported model, whose text is not known
    if train := data.splits.get("train"):
        lengths = train.source_length.max, train.target_length.max
    weights = run.weights(checkpoint)
    trained = Trained(
        run.model(weights),
        run.config.model,
        run.config.position,
        run.subwords(),
        run.directory / SUBWORDS,
        lengths,
        run.config.decoding,
        hash_file(weights),
    )
    if to == "huggingface":
        card = model_card(run, data, trained, weights)
        return huggingface.export(trained, target, card=card, max_length=max_length)
    if to == "onnx":
        return onnx.export(trained, target, max_length=max_length)
    return ctranslate2.export(trained, target, quantization=quantization, max_length=max_length)


def check_exports(run: Run) -> list[Finding]:
    """Export a run to every engine, into a folder that is removed, and return whether the exported
    models compute what the run's does: a finding of `export parity` for each."""
    findings = []
    for engine in ENGINES:
        with tempfile.TemporaryDirectory() as folder:
            try:
                parity = export_run(run, engine, Path(folder) / engine).parity
            except ParityError as error:
                findings.append(Finding("export parity", engine, "FAIL", str(error)))
            except ShapeshiftError as reason:
                findings.append(Finding("export parity", engine, "not applicable", str(reason)))
            else:
                findings.append(Finding("export parity", engine, "pass", str(parity)))
    return findings
