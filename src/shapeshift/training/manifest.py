"""The manifest of a checkpoint, `state.json`: how far the run was, and the hashes of the weights.

Nothing is used before it is compared with the manifest, and the manifest before its own hash. A
file is read once: the bytes that are compared are the bytes that are used.
"""

from __future__ import annotations

import hashlib
import json
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final, Literal

from pydantic import ConfigDict, Field, ValidationError

from shapeshift._system.errors import ShapeshiftError
from shapeshift._system.files import MAX_DOCUMENT, limited, read
from shapeshift._system.hashes import digest
from shapeshift._system.schema import Strict

MODEL: Final = "model.safetensors"
OPTIMIZER: Final = "optimizer.safetensors"
STATE: Final = "state.json"
Name = Literal["model.safetensors", "optimizer.safetensors"]

Count = Annotated[int, Field(ge=0)]


class DamagedError(ShapeshiftError):
    """A checkpoint differs from what was saved.

    Attributes:
        reason: the file and what is wrong with it, without the folder.
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
    """Progress of a run; with the seed, it determines the rest of the training.

    Attributes:
        update: updates done.
        epoch: the epoch of the next batch, counted from 0.
        batch: batches of that epoch already used.
        best_update, best_loss: update of the best checkpoint, and its validation loss.
        best_score: the best checkpoint's score, if `training.best_metric` is not the loss.
        elapsed_s: seconds of training, over all restarts.
        validated_update: the last update whose validation is complete.
    """

    update: Count = 0
    epoch: Count = 0
    batch: Count = 0
    best_update: Count | None = None
    best_loss: float | None = None
    best_score: float | None = None
    elapsed_s: float = 0.0
    validated_update: Count | None = None


class Manifest(Strict):
    """The content of `state.json`.

    Attributes:
        progress: how far the run was.
        files: SHA-256 of the files next to it; no other file is ever opened.
    """

    model_config = ConfigDict(strict=True)

    progress: Progress
    files: dict[Name, Annotated[str, Field(pattern="^[0-9a-f]{64}$")]] = Field(min_length=2)
    sha256: str = ""

    def encode(self) -> bytes:
        """Return the file's content, with the hash of all other values as `sha256`."""
        document = self.model_dump(exclude={"sha256"})
        return json.dumps(document | {"sha256": digest(document)}, indent=2).encode() + b"\n"


def read_manifest(checkpoint: Path) -> Manifest:
    """Read the manifest of the checkpoint in a folder."""
    path = checkpoint / STATE
    content = read_file(path)
    with suppress(ValidationError):
        manifest = Manifest.model_validate_json(content)
        if manifest.encode() == content:
            return manifest
    raise DamagedError("differs from what was saved (SHA-256)", path)


def read_verified(checkpoint: Path, name: Name, manifest: Manifest) -> bytes:
    """Return the content of one file of a checkpoint."""
    path = checkpoint / name
    content = read_file(path)
    if hashlib.sha256(content).hexdigest() != manifest.files[name]:
        raise DamagedError("differs from what was saved (SHA-256)", path)
    return content


def read_file(path: Path) -> bytes:
    """Return a file's content."""
    try:
        return read(path, MAX_DOCUMENT if path.name == STATE else None)
    except PermissionError as error:
        raise ShapeshiftError("may not be read; fix its permissions", path=path) from error
    except OSError as error:
        damage = DamagedError(f"cannot be read ({error.strerror})", path)
        raise limited(error, path) or damage from error
