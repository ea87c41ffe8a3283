"""COMET: translations scored by a network trained on human judgements (Rei et al. 2020).

The network comes from the package `unbabel-comet` (the extra `comet`), which is imported when a
score is computed. The network is loaded once in a process and stays in memory.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from types import ModuleType
from typing import Any

from shapeshift._system.errors import ShapeshiftError, reason, require
from shapeshift._system.hashes import hash_file

DEFAULT_MODEL = "Unbabel/wmt20-comet-da"  # the NHK study's (LREC-COLING 2024, section 3.1)
SCALE = 100  # by which papers multiply COMET


def score(
    sources: Sequence[str],
    hypotheses: Sequence[str],
    references: Sequence[str],
    model: str = DEFAULT_MODEL,
) -> tuple[float, str, tuple[float, ...]]:
    """Score translations, line by line, over the whole corpus, on a GPU where there is one. The
    model is named as on the Hugging Face hub, or is the path of a checkpoint or of its folder.

    Returns:
        A hundred times the mean score of a segment, which may lie below 0 or above 100; the
        signature: model, SHA-256 of its checkpoint, version of the package, scale; and a hundred
        times the score of each segment.

    Raises:
        ShapeshiftError: as `load`.
    """
    import torch

    network, signature = load(model)
    texts = zip(sources, hypotheses, references, strict=True)
    samples = [{"src": source, "mt": own, "ref": wanted} for source, own, wanted in texts]
    gpus = int(torch.cuda.is_available())
    prediction = network.predict(samples, batch_size=16, gpus=gpus, progress_bar=False)
    segments = tuple(SCALE * float(each) for each in prediction.scores)
    return SCALE * float(prediction.system_score), signature, segments


@lru_cache(maxsize=1)
def load(name: str) -> tuple[Any, str]:
    """Return the network with this name or path and its signature; download it if needed."""
    import torch

    comet, path = require_comet(), fetch(name)
    try:
        # A checkpoint with other objects than tensors and plain values could run code: it is
        # refused here, before COMET reads it in full.
        torch.load(path, map_location="cpu", weights_only=True)  # noqa: TID251
        network = comet.load_from_checkpoint(str(path))
    except Exception as error:  # the package raises `Exception` itself
        raise ShapeshiftError(
            f"the COMET model {name!r} cannot be loaded ({reason(error)}); name another"
            " (evaluation.comet_model, or `shapeshift score --comet-model`)",
            path=path,
        ) from error
    model, sha256 = Path(name).name if Path(name).exists() else name, hash_file(path)[:16]
    return network, f"model:{model}|sha256:{sha256}|version:{comet.__version__}|scale:{SCALE}"


def require_comet() -> ModuleType:
    """Import `unbabel-comet`, or raise an error that says how to install it."""
    comet: ModuleType = require("comet", "comet")
    for logger in ("pytorch_lightning", "lightning.pytorch"):  # they log each use of a device
        logging.getLogger(logger).setLevel(logging.WARNING)
    return comet


def fetch(name: str) -> Path:
    """Return the path of the checkpoint; a network that is not on this machine is downloaded."""
    comet = require_comet()
    local = Path(name).expanduser()
    path = local / "checkpoints" / "model.ckpt" if local.is_dir() else local
    if path.is_file():
        return path
    try:
        return Path(comet.download_model(name))
    except Exception as error:  # of the network, of the hub, of the package
        raise ShapeshiftError(
            f"the COMET model {name!r} cannot be downloaded ({reason(error)}); connect to the"
            " internet, or give the path of its model.ckpt (evaluation.comet_model, or"
            " `shapeshift score --comet-model`)"
        ) from error
