"""Seeds that depend on names and numbers alone: the same in every process and on every machine."""

from __future__ import annotations

import hashlib


def derive(seed: int, *labels: str | int) -> int:
    """Return a 63-bit seed that is a pure function of `seed` and `labels`.

    Streams with different labels are independent for all practical purposes, so dropout, shuffling
    and offsets of an update can each have their own, and none has a history to be restored.
    """
    text = "/".join(map(str, (seed, *labels)))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1
