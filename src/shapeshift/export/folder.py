"""The folder of an exported model, which appears when all of it is on the disk.

Next to the model itself it has

export.json      what was exported, and the check
subwords/        the subword models, where the engine has no tokenizer
SHA256SUMS       hashes of these files, see `integrity`
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path

from pydantic import TypeAdapter

from shapeshift._system.errors import ShapeshiftError, shell_command
from shapeshift._system.files import (
    MAX_FILE,
    make_directory,
    move,
    partial_directory,
    read,
    save,
    writing,
)
from shapeshift._system.hashes import seal
from shapeshift.data.subwords import Subwords
from shapeshift.decoding.capacity import Capacity
from shapeshift.decoding.config import DecodingConfig
from shapeshift.model import ModelConfig, Transformer
from shapeshift.model.position_config import PositionConfig

from .parity import Parity

REPORT = "export.json"
REMEDY = "export the model again, into a new folder"


@dataclass(frozen=True)
class Trained:
    """A trained model with everything that exporters need.

    Attributes:
        model: on the CPU, in fp32.
        subword_models: their folder, to be copied; None copies nothing.
        longest: the most subwords of a source and of a target in training, which the check covers.
        checkpoint: the name of these weights, see `run.folder.Run.weights`.
    """

    model: Transformer
    shape: ModelConfig
    position: PositionConfig
    subwords: Subwords
    subword_models: Path | None = None
    longest: tuple[int, int] = (64, 64)
    decoding: DecodingConfig = field(default_factory=DecodingConfig)
    weights_sha256: str | None = None
    checkpoint: str = "average"


@dataclass(frozen=True)
class Report:
    """What was exported.

    Attributes:
        positions: how exactly they are computed, see `support`.
        capacity: the most tokens of a source and of a target that the exported model has positions
            for; None means no limit.
        weights_sha256, checkpoint: the weights that were exported, and their name in the run.
    """

    engine: str
    opened_by: str
    positions: str
    capacity: Capacity
    parity: Parity
    weights_sha256: str | None = None
    quantization: str | None = None
    checkpoint: str = "average"

    def save(self, folder: Path, subword_models: Path | None = None) -> None:
        """Write `export.json`, and copies of the subword models, into the folder of a model."""
        save(folder / REPORT, json.dumps(asdict(self), indent=2) + "\n")
        for path in sorted(subword_models.glob("*.model")) if subword_models else ():
            save(folder / "subwords" / path.name, read(path, MAX_FILE))


def engines(run: Path) -> str:
    """Return the names of the engines that can translate with a run: `torch`, and the exports in
    its folder."""
    return ", ".join(["torch", *sorted(path.parent.name for path in run.glob(f"*/{REPORT}"))])


def read_report(folder: Path) -> Report:
    """Read the report of an export, without checking hashes.

    Raises:
        ShapeshiftError: it holds no exported model.
    """
    try:
        return TypeAdapter(Report).validate_json(read(folder / REPORT))
    except PermissionError as error:
        message = "may not be read; fix its permissions"
        raise ShapeshiftError(message, path=folder / REPORT) from error
    except (OSError, ValueError) as error:
        raise ShapeshiftError(
            f"holds no model that `shapeshift export` wrote; there are {engines(folder.parent)}; to"
            f" make one: {shell_command('export', folder.parent, '--to', 'ctranslate2')} (or onnx)",
            path=folder,
        ) from error


def refuse_useless_length(max_length: int | None, limits: Sequence[int | None] = ()) -> None:
    """Raise a `ShapeshiftError` if `max_length` is given and is no limit of the exported model."""
    if max_length is not None and max_length not in limits:
        own = next((f"it takes {n:,} tokens at most" for n in limits if n), "it has no such limit")
        raise ShapeshiftError(
            f"max_length={max_length} (--max-length) has no effect on this model: {own}; leave it"
            " out"
        )


@contextmanager
def new_folder(target: Path) -> Iterator[Path]:
    """Context: yield the path of a temporary folder, to be made and filled. At the end, its files
    are hashed and it is renamed to `target`; after an error, it is deleted with what is next to it.

    Raises:
        ShapeshiftError: `target` is not an empty folder, or the disk refuses.
    """
    if os.path.lexists(target) and not (target.is_dir() and not any(target.iterdir())):
        raise ShapeshiftError(
            "exists and is not an empty folder; name a new one with --output, or remove it",
            path=target,
        )
    target = target.absolute()
    with writing(target):
        make_directory(target.parent)
    with writing(target), partial_directory(target) as partial:
        folder = partial / "model"
        yield folder
        seal(folder)
        move(folder, target)
