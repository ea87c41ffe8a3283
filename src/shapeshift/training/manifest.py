"""What a checkpoint consists of: `state.json`, which lists its files by size and SHA-256.

Nothing is used before it was compared with the manifest, and the manifest before its own hash. The
bytes that were compared are the bytes that are used: a file is read once.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import ConfigDict, Field, ValidationError

from shapeshift.errors import ShapeshiftError
from shapeshift.schema import Strict

MODEL: Final = "model.safetensors"
OPTIMIZER: Final = "optimizer.safetensors"
STATE: Final = "state.json"
Name = Literal["model.safetensors", "optimizer.safetensors"]

LARGEST_MANIFEST = 1 << 24
"""Bytes; what is larger is none and is not read."""

Count = Annotated[int, Field(ge=0)]


class DamagedError(ShapeshiftError):
    """A checkpoint that is not what was saved.

    Attributes:
        reason: what is wrong, in half a line, without the path.
    """

    def __init__(self, reason: str, path: Path):
        self.reason = f"{path.name}: {reason}"
        super().__init__(
            f"{reason}; this checkpoint is damaged: use another one, or run the training command"
            " again, which continues from the newest one that is intact",
            path=path,
        )


@dataclass
class Progress:
    """How far a run is. With the seed it determines all that follows.

    Attributes:
        update: updates done.
        epoch: the epoch that the next batch is from, counted from 0.
        batch: batches of that epoch already used.
        best_update, best_loss: the best of all validations so far, and its loss.
        best_score: its score, where it is the best by a metric; see `training.best_metric`.
        elapsed_s: time spent training, over all restarts.
        validated_update: the last one after which validation was completed.
    """

    update: Count = 0
    epoch: Count = 0
    batch: Count = 0
    best_update: Count | None = None
    best_loss: float | None = None
    best_score: float | None = None
    elapsed_s: float = 0.0
    validated_update: Count | None = None


class File(Strict):
    """One file of a checkpoint."""

    bytes: Count
    sha256: str = Field(pattern="^[0-9a-f]{64}$")


class Manifest(Strict):
    """The file `state.json`.

    Attributes:
        progress: how far the run was.
        optimizer: what the optimiser keeps that is no tensor, `PARAMETER.KEY` → number.
        files: the files next to it; no other name is ever opened.
        sha256: of all that; `encode` computes it.
    """

    model_config = ConfigDict(strict=True, revalidate_instances="always")

    progress: Progress
    optimizer: dict[Annotated[str, Field(pattern=r"^\d+\.\w+$")], bool | int | float]
    files: dict[Name, File] = Field(min_length=2)
    sha256: str = ""

    def encode(self) -> bytes:
        """Return the only bytes that stand for this manifest."""
        document: dict[str, Any] = self.model_dump(exclude={"sha256"})
        for name in ("best_score", "validated_update"):  # which older checkpoints lack
            if document["progress"][name] is None:
                del document["progress"][name]
        content = json.dumps(document, sort_keys=True).encode()
        document["sha256"] = hashlib.sha256(content).hexdigest()
        return json.dumps(document, indent=2).encode() + b"\n"


def read_manifest(checkpoint: Path) -> Manifest:
    """Read the manifest of the checkpoint in a folder.

    Raises:
        DamagedError: if it is missing, or one bit of it is not as it was written.
        ShapeshiftError: if it may not be read.
    """
    path = checkpoint / STATE
    raw = _read(path, LARGEST_MANIFEST)
    try:
        manifest = Manifest.model_validate_json(raw)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        reason = f"{place}: {first['msg']}" if place else first["msg"]
        raise DamagedError(f"not a manifest ({' '.join(reason.split())[:200]})", path) from error
    if manifest.encode() != raw:
        raise DamagedError("differs from what was saved (SHA-256)", path)
    return manifest


def read_verified(checkpoint: Path, name: Name, manifest: Manifest) -> bytes:
    """Return the bytes of one file of a checkpoint, which are those that were saved.

    Raises:
        DamagedError: if the file is missing, or one bit of it is not as it was written.
        ShapeshiftError: if it may not be read.
    """
    path, expected = checkpoint / name, manifest.files[name]
    content = _read(path, expected.bytes)
    if len(content) != expected.bytes:
        raise DamagedError(f"has {len(content):,} bytes, {expected.bytes:,} were saved", path)
    if hashlib.sha256(content).hexdigest() != expected.sha256:
        raise DamagedError("differs from what was saved (SHA-256)", path)
    return content


def _read(path: Path, limit: int) -> bytes:
    try:
        size = path.stat().st_size
        if size > limit:
            raise DamagedError(f"has {size:,} bytes, {limit:,} at most are expected", path)
        return path.read_bytes()
    except PermissionError as error:
        raise ShapeshiftError("may not be read; fix its permissions", path=path) from error
    except OSError as error:
        raise DamagedError(f"cannot be read ({error.strerror})", path) from error
