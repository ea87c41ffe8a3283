"""Weights as safetensors files: written as they are in memory, read without trust."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load
from torch import Tensor, nn

from shapeshift.disk import Disk, free_bytes, replace_file
from shapeshift.errors import ShapeshiftError
from shapeshift.training.manifest import MODEL, STATE, read_manifest, read_verified

_DTYPES = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.bfloat16: "BF16",
    torch.float16: "F16",
    torch.int64: "I64",
    torch.bool: "BOOL",
}
_DIGEST = "sha256"


@dataclass(frozen=True)
class Encoded:
    """Tensors as a safetensors file that is not yet written: a header, then their bytes.

    The library's own writer would hold a second copy of all tensors, or would write where neither
    a hash nor a failure can be seen; the bytes are the same.

    Attributes:
        header: the length of the JSON, the JSON, blanks up to a multiple of 8 bytes.
        tensors: on the CPU and contiguous, in the order of the file.
    """

    header: bytes
    tensors: tuple[Tensor, ...]

    @property
    def num_bytes(self) -> int:
        """How long the file will be."""
        return len(self.header) + sum(tensor.nbytes for tensor in self.tensors)

    def chunks(self) -> Iterator[memoryview]:
        """Yield the bytes of the file; those of a tensor are not copied."""
        yield memoryview(self.header)
        for tensor in self.tensors:
            yield tensor.reshape(-1).view(torch.uint8).numpy().data


def encode(tensors: Mapping[str, Tensor], metadata: Mapping[str, str] | None = None) -> Encoded:
    """Lay tensors out as a safetensors file: the widest numbers first, then by name."""
    named = sorted(tensors.items(), key=lambda item: (-item[1].element_size(), item[0]))
    entries: dict[str, object] = (
        {"__metadata__": dict(sorted(metadata.items()))} if metadata else {}
    )
    end = 0
    for name, tensor in named:
        begin, end = end, end + tensor.nbytes
        entries[name] = {
            "dtype": _DTYPES[tensor.dtype],
            "shape": list(tensor.shape),
            "data_offsets": [begin, end],
        }
    text = json.dumps(entries, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    return Encoded(len(text).to_bytes(8, "little") + text, tuple(tensor for _, tensor in named))


def decode(content: bytes, path: Path) -> dict[str, Tensor]:
    """Return the tensors of a safetensors file that was read from `path`.

    Raises:
        ShapeshiftError: if that is none.
    """
    try:
        return load(content)
    except (
        SafetensorError,
        ValueError,
        TypeError,
        LookupError,
        ArithmeticError,
        RuntimeError,
        AssertionError,
    ) as error:
        reason = " ".join(str(error).split())[:200]
        raise ShapeshiftError(f"not a readable safetensors file ({reason})", path=path) from error


def weights(model: nn.Module) -> dict[str, Tensor]:
    """Return the model's parameters by name; one that serves twice is there once."""
    return {name: p.detach().cpu().contiguous() for name, p in model.named_parameters()}


def read_weights(path: Path) -> dict[str, Tensor]:
    """Return the weights in a file, compared with their hash: that of the checkpoint's manifest
    next to them, or the one that `average` wrote into the file.

    Raises:
        ShapeshiftError: if the file is missing or damaged.
    """
    if path.name == MODEL and (path.parent / STATE).exists():
        return decode(read_verified(path.parent, MODEL, read_manifest(path.parent)), path)
    return _read(path)[0]


def _read(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Return the weights and the metadata of a file, compared with its own hash if it has one."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        raise ShapeshiftError("no such file", path=path) from None
    except OSError as error:
        raise ShapeshiftError(f"cannot be read ({error.strerror})", path=path) from error
    tensors = decode(content, path)
    metadata = _metadata(content)
    expected = metadata.pop(_DIGEST, None)
    if expected is not None and expected != _digest(tensors, metadata):
        raise ShapeshiftError(
            "differs from what was saved (SHA-256); run the training command again",
            path=path,
        )
    return tensors, metadata


def is_average_of(path: Path, paths: Sequence[Path]) -> bool:
    """Return whether a file is there, intact, and what `average` wrote of exactly these `paths`."""
    try:
        _, metadata = _read(path)
    except ShapeshiftError:
        return False
    return metadata == _average_metadata(paths)


def load_weights(model: nn.Module, path: Path) -> None:
    """Load parameters that `weights` named.

    Raises:
        ShapeshiftError: if the file is missing or damaged, or holds another model's parameters.
    """
    assign(model, read_weights(path), path)


def check_weights(model: nn.Module, loaded: Mapping[str, Tensor], path: Path) -> None:
    """Raise `ShapeshiftError` unless names, shapes and types are those of the model's parameters;
    `path` is where they are from."""
    own = dict(model.named_parameters())
    missing, foreign = own.keys() - loaded.keys(), loaded.keys() - own.keys()
    if missing or foreign:
        example = min(missing or foreign)
        raise ShapeshiftError(
            f"holds another model: {len(missing)} parameters are missing and {len(foreign)} are"
            f" unknown, {example!r} for one",
            path=path,
        )
    for name, parameter in own.items():
        found = loaded[name]
        if (found.shape, found.dtype) != (parameter.shape, parameter.dtype):
            raise ShapeshiftError(
                f"holds another model: {name} has shape {tuple(found.shape)} of {found.dtype},"
                f" expected {tuple(parameter.shape)} of {parameter.dtype}",
                path=path,
            )


@torch.no_grad()
def assign(model: nn.Module, loaded: Mapping[str, Tensor], path: Path) -> None:
    """Copy weights into a model, after `check_weights`."""
    check_weights(model, loaded, path)
    for name, parameter in model.named_parameters():
        parameter.copy_(loaded[name])


def average(paths: Sequence[Path], target: Path, disk: Disk | None = None) -> None:
    """Write the mean of several files of weights to `target`, atomically, with its own hash.

    Raises:
        ShapeshiftError: if there is nothing to average, a file cannot be read or written, or they
            are not all of one model.
    """
    if not paths:
        raise ShapeshiftError("there is no checkpoint to average yet")
    total = {name: tensor.double() for name, tensor in read_weights(paths[0]).items()}
    for path in paths[1:]:
        tensors = read_weights(path)
        if _shapes(tensors) != _shapes(total):
            raise ShapeshiftError(f"holds another model than {paths[0]}", path=path)
        for name, tensor in tensors.items():
            total[name] += tensor
    mean = {name: (tensor / len(paths)).float() for name, tensor in total.items()}
    metadata = _average_metadata(paths)
    encoded = encode(mean, metadata | {_DIGEST: _digest(mean, metadata)})
    try:
        replace_file(disk or Disk(), target, encoded.chunks())
    except OSError as error:
        raise ShapeshiftError(
            f"cannot be written ({error.strerror}); it needs {encoded.num_bytes:,} bytes and"
            f" {free_bytes(target.parent):,} are free; fix that and run the same command again",
            path=target,
        ) from error


def _average_metadata(paths: Sequence[Path]) -> dict[str, str]:
    return {"average_of": ", ".join(path.parent.name for path in paths)}


def _shapes(tensors: Mapping[str, Tensor]) -> dict[str, torch.Size]:
    return {name: tensor.shape for name, tensor in tensors.items()}


def _digest(tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> str:
    digest = hashlib.sha256()
    for chunk in encode(tensors, metadata).chunks():
        digest.update(chunk)
    return digest.hexdigest()


def _metadata(content: bytes) -> dict[str, str]:
    # The library hands metadata out for files alone; that this is JSON it has already checked.
    header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
    return dict(header.get("__metadata__") or {})
