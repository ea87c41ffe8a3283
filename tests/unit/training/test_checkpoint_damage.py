"""No damaged byte of a checkpoint is used, and no hostile manifest gets further than a line."""

import hashlib
import json

import pytest
import torch
from safetensors.torch import save

from shapeshift._system.errors import ShapeshiftError
from shapeshift.training.checkpoints import Checkpoints
from shapeshift.training.manifest import (
    MODEL,
    OPTIMIZER,
    STATE,
    DamagedError,
    Progress,
    read_manifest,
    read_verified,
)

from .models import linear

FILES = (MODEL, OPTIMIZER, STATE)


@pytest.fixture
def two(memory):
    """Two checkpoints, of updates 1 and 2."""
    checkpoints = Checkpoints(memory / "checkpoints", keep=2)
    for update in (1, 2):
        checkpoints.save(*linear(update), Progress(update, 3, 14, 1, 0.1 + 0.2, 7.25))
    return checkpoints


def read(folder):
    manifest = read_manifest(folder)
    return [read_verified(folder, name, manifest) for name in (MODEL, OPTIMIZER)]


@pytest.mark.parametrize("file", FILES)
def test_a_flipped_bit_in_any_byte_and_every_truncation_are_noticed(two, file):
    folder = two.path(2)
    path = folder / file
    content = path.read_bytes()
    read(folder)
    for place in range(len(content)):
        flipped = bytes([content[place] ^ 1 << place % 8])
        for damaged in (content[:place] + flipped + content[place + 1 :], content[:place]):
            path.write_bytes(damaged)
            with pytest.raises(DamagedError):
                read(folder)


def forged(document):
    """Return a manifest with the right hash, as an attacker would write it."""
    document = {key: value for key, value in document.items() if key != "sha256"}
    content = json.dumps(document, sort_keys=True).encode()
    document["sha256"] = hashlib.sha256(content).hexdigest()
    return json.dumps(document, indent=2).encode() + b"\n"


HASH = "0" * 64
HOSTILE = {
    "name of a parent": {"files": {MODEL: HASH, f"../update-00000001/{OPTIMIZER}": HASH}},
    "hash of another type": {"files": {MODEL: 7, OPTIMIZER: HASH}},
    "unknown progress": {"progress": {"update": 2, "rank": 1}},
    "another update": {"progress": {"update": 1}},
    "unknown key": {"extra": 1},
    "deep lists": b"[" * 1_000_000,
}
"""Changes of a manifest, whose hash is made to fit, or all of its bytes."""


def restore_forged(two, content):
    """Return how a checkpoint with this manifest is refused."""
    path = two.path(2) / STATE
    path.write_bytes(content)
    with pytest.raises(ShapeshiftError) as caught:
        two.restore(2, *linear(9))
    message = str(caught.value).replace(str(path.parent), "")
    assert "\n" not in message
    assert len(message) < 400
    return message


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_manifest_ends_in_one_line(two, name):
    content = (two.path(2) / STATE).read_bytes()
    document = json.loads(content)
    assert forged(document) == content
    hostile = HOSTILE[name]
    content = hostile if isinstance(hostile, bytes) else forged(document | hostile)
    assert restore_forged(two, content).startswith("/state.json: ")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        (MODEL, b"\xff" * 100, "not a readable safetensors file"),
        (OPTIMIZER, save({"step": torch.ones(1)}), "'step' does not belong to an optimiser"),
    ],
)
def test_a_file_that_fits_the_manifest_but_is_none_of_ours(two, name, content, message):
    folder = two.path(2)
    (folder / name).write_bytes(content)
    document = json.loads((folder / STATE).read_bytes())
    document["files"][name] = hashlib.sha256(content).hexdigest()
    assert message in restore_forged(two, forged(document))


def test_what_may_not_be_read_is_not_called_damaged(two, monkeypatch):
    from shapeshift.training import manifest

    def refuse(path, most=None):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(manifest, "read", refuse)
    with pytest.raises(ShapeshiftError, match="may not be read; fix its permissions"):
        two.resume(*linear(9))
    assert two.updates() == [1, 2]
