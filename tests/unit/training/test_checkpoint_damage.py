"""No damaged byte of a checkpoint is used, and no hostile manifest gets further than a line."""

import hashlib
import json
import random

import pytest
import torch
from torch import nn

from shapeshift.errors import ShapeshiftError
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

FILES = (MODEL, OPTIMIZER, STATE)


def make(seed):
    torch.manual_seed(seed)
    model = nn.Linear(2, 1)
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.randn(3, 2)).sum().backward()
    optimizer.step()
    return model, optimizer


@pytest.fixture
def two(memory):
    """Two checkpoints, of updates 1 and 2."""
    checkpoints = Checkpoints(memory / "checkpoints", keep=2)
    for update in (1, 2):
        checkpoints.save(*make(update), Progress(update, 3, 14, 1, 0.1 + 0.2, 7.25))
    return checkpoints


def read(folder):
    manifest = read_manifest(folder)
    return [read_verified(folder, name, manifest) for name in (MODEL, OPTIMIZER)]


@pytest.mark.parametrize("file", FILES)
def test_every_bit_and_every_truncation_is_noticed(two, file):
    folder = two.path(2)
    path = folder / file
    content = path.read_bytes()
    read(folder)
    for place in range(len(content)):
        for damaged in (
            *(content[:place] + bytes([content[place] ^ 1 << bit]) + content[place + 1 :]
              for bit in range(8)),
            content[:place],
        ):  # fmt: skip
            path.write_bytes(damaged)
            with pytest.raises(DamagedError):
                read(folder)
    path.write_bytes(content)
    read(folder)


def corrupt(content, rng):
    """Return other bytes, and what was done to them."""
    begin = rng.randrange(len(content))
    end = min(len(content), begin + rng.randint(1, 64))
    kinds = {
        "bits": lambda: bytes(
            byte ^ (1 << rng.randrange(8)) if begin <= place < end and rng.random() < 0.3 else byte
            for place, byte in enumerate(content)
        ),
        "zeros": lambda: content[:begin] + bytes(end - begin) + content[end:],
        "noise": lambda: content[:begin] + rng.randbytes(end - begin) + content[end:],
        "cut": lambda: content[:begin],
        "hole": lambda: content[:begin] + content[end:],
        "longer": lambda: content + rng.randbytes(end - begin),
        "twice": lambda: content[:end] + content[begin:],
        "empty": lambda: b"",
        "a zeroed block": lambda: content[: begin & ~511] + bytes(len(content) - (begin & ~511)),
        "other case": lambda: content[:begin] + content[begin:end].swapcase() + content[end:],
    }
    while True:
        kind = rng.choice(list(kinds))
        damaged = kinds[kind]()
        if damaged != content:
            return kind, damaged


def test_a_thousand_corruptions_and_none_is_loaded(two):
    rng = random.Random(1)
    original = two.path(2)
    contents = {name: (original / name).read_bytes() for name in FILES}
    model, optimizer = make(9)
    seen = set()
    for _ in range(1000):
        file = rng.choice(FILES)
        kind, damaged = corrupt(contents[file], rng)
        (original / file).write_bytes(damaged)
        resumed = two.resume(model, optimizer)
        assert resumed.progress.update == 1, (file, kind)
        (skipped,) = resumed.skipped
        assert skipped.reason.startswith(f"{file}: ")
        assert "\n" not in str(skipped)
        assert (skipped.path / file).read_bytes() == damaged
        seen.add((file, kind))
        skipped.path.rename(original)
        (original / file).write_bytes(contents[file])
    assert len(seen) == 30
    assert two.resume(model, optimizer).progress.update == 2


def test_files_of_two_checkpoints_do_not_mix(two):
    for name in (MODEL, OPTIMIZER):
        one, other = (two.path(update) / name for update in (1, 2))
        content = other.read_bytes()
        other.write_bytes(one.read_bytes())
        with pytest.raises(DamagedError, match=f"{name}: differs from what was saved"):
            two.restore(2, *make(9))
        other.write_bytes(content)


def forged(document):
    """Return a manifest with the right hash, as an attacker would write it."""
    document = {key: value for key, value in document.items() if key != "sha256"}
    content = json.dumps(document, sort_keys=True).encode()
    document["sha256"] = hashlib.sha256(content).hexdigest()
    return json.dumps(document, indent=2).encode() + b"\n"


def with_(document, **changes):
    """Return a copy in which `a__b=c` has set document["a"]["b"] to c."""
    copy = json.loads(json.dumps(document))
    for key, value in changes.items():
        *outer, last = key.split("__")
        target = copy
        for name in outer:
            target = target[name]
        target[last] = value
    return copy


def file(num_bytes=10, sha256="0" * 64):
    return {"bytes": num_bytes, "sha256": sha256}


HOSTILE = {
    "absolute name": {"files": {MODEL: file(), "/etc/passwd": file()}},
    "name of a parent": {"files": {MODEL: file(), f"../update-00000001/{OPTIMIZER}": file()}},
    "one name more": {"files": {MODEL: file(), OPTIMIZER: file(), "x.safetensors": file()}},
    "one name fewer": {"files": {MODEL: file()}},
    "no names": {"files": {}},
    "names of another type": {"files": [MODEL, OPTIMIZER]},
    "hash of another type": {"files": {MODEL: file(sha256=7), OPTIMIZER: file()}},
    "hash that is none": {"files": {MODEL: file(sha256="../../x"), OPTIMIZER: file()}},
    "negative size": {"files": {MODEL: file(-1), OPTIMIZER: file()}},
    "endless size": {"files": {MODEL: file(10**30), OPTIMIZER: file()}},
    "size of another type": {"files": {MODEL: file("564"), OPTIMIZER: file()}},
    "update of another type": {"progress__update": "2"},
    "negative update": {"progress__update": -2},
    "fraction of an update": {"progress__update": 2.5},
    "a truth for a batch": {"progress__batch": True},
    "unknown progress": {"progress__rank": 1},
    "another update": {"progress__update": 1},
    "no progress": {"progress": None},
    "optimizer of another type": {"optimizer": []},
    "number of another type": {"optimizer": {"0.step": "1"}},
    "number of no parameter": {"optimizer": {"step": 1}},
    "unknown key": {"extra": 1},
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_manifests_with_the_right_hash_end_in_one_line(two, name):
    path = two.path(2) / STATE
    document = json.loads(path.read_bytes())
    assert forged(document) == path.read_bytes()
    path.write_bytes(forged(with_(document, **HOSTILE[name])))
    with pytest.raises(DamagedError) as caught:
        two.restore(2, *make(9))
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 400 + len(str(path))


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\n",
        b"not JSON",
        b"\xff\xfe\x00",
        b"[]",
        b"{}",
        b"null",
        b"7",
        b'"text"',
        b"NaN",
        b"9" * 10_000,
        b"[" * 1_000_000,
        b'{"progress":' * 100_000,
        b'{"progress": {"update": 8}}',
        b" " * (1 << 24) + b"{}",
    ],
    ids=lambda content: repr(content[:20]),
)
def test_a_manifest_that_is_none_ends_in_one_line(two, content):
    path = two.path(2) / STATE
    path.write_bytes(content)
    for use in (two.progress, lambda update: two.restore(update, *make(9))):
        with pytest.raises(DamagedError, match=r"state\.json: ") as caught:
            use(2)
        assert "\n" not in str(caught.value)
        assert len(str(caught.value)) < 400 + len(str(path))


def test_a_folder_in_place_of_a_file_is_damage(two):
    (two.path(2) / STATE).unlink()
    (two.path(2) / STATE).mkdir()
    resumed = two.resume(*make(9))
    assert [x.reason for x in resumed.skipped] == ["state.json: cannot be read (Is a directory)"]


def test_what_may_not_be_read_is_not_called_damaged(two, monkeypatch):
    from shapeshift.training import manifest

    def refuse(path):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(manifest.Path, "read_bytes", refuse)
    with pytest.raises(ShapeshiftError, match="may not be read; fix its permissions"):
        two.resume(*make(9))
    assert two.updates() == [1, 2]


def test_a_file_that_fits_the_manifest_but_is_no_safetensors_ends_in_one_line(two):
    folder = two.path(2)
    content = b"\xff" * 100
    (folder / MODEL).write_bytes(content)
    document = json.loads((folder / STATE).read_bytes())
    document["files"][MODEL] = file(100, hashlib.sha256(content).hexdigest())
    (folder / STATE).write_bytes(forged(document))
    with pytest.raises(ShapeshiftError, match="not a readable safetensors file") as caught:
        two.restore(2, *make(9))
    assert "\n" not in str(caught.value)
