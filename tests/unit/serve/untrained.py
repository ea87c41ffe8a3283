"""Runs that were never trained, made in a moment, and a server of them in a thread."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import torch
from safetensors.torch import save_file

from shapeshift.config import parse_config
from shapeshift.data.config import SubwordsConfig
from shapeshift.data.subwords import Subwords
from shapeshift.model import build
from shapeshift.run.folder import AVERAGE, Run
from shapeshift.serve.limits import Limits
from shapeshift.serve.server import Server, address, bind
from shapeshift.serve.service import ServedRun, Service

LINES = ["ab cd", "", "fe. dc ba, ab cd ef. a", "   ", "abc\r", "</s> a <sep>", "e\u2028\x85\u200b"]
MODEL = {"dim": 16, "num_heads": 2, "ff_dim": 16, "encoder_layers": 2, "decoder_layers": 1}


def write_run(
    folder: Path, position: object = "ape", subwords: Path | None = None, **settings: object
) -> Path:
    """Write a run whose model gives more or less random text, of a few letters unless there are
    subword models to copy."""
    words = [f"{a}{b} {b}{c}. {c}, {a}" for a in "abcdef" for b in "abcdef" for c in "abcdef"]
    config = parse_config(
        {
            "data": {"corpus": {"corpus": "grammar"}},
            "model": MODEL,
            "position": position,
            "training": {"precision": "fp32", "device": "cpu"},
            "decoding": {"beam": 2, "max_length_a": 0.5, "max_length_b": 5},
            **settings,
        }
    )
    Run.create(folder, config)
    if subwords is None:
        pairs = [(word, word) for word in words]
        Subwords.train(lambda: iter(pairs), SubwordsConfig(vocab_size=40), folder / "subwords")
    else:
        shutil.copytree(subwords, folder / "subwords")
    torch.manual_seed(0)
    size = Subwords.load(folder / "subwords").source_size
    model = build(config.model, config.position.scheme, size, size)
    save_file({name: p.detach() for name, p in model.named_parameters()}, folder / AVERAGE)
    return folder


@contextmanager
def serving(folders: Sequence[Path], limits: Limits | None = None) -> Iterator[tuple[Service, str]]:
    """Serve runs on a free port of this machine; yield the service and its address."""
    service = Service([ServedRun(folder) for folder in folders], limits or Limits())
    with bind("127.0.0.1", 0) as listener:
        server = Server(service, listener)
        service.server = server
        server.thread = thread = threading.Thread(target=server.serve_until_signal)
        thread.start()
        try:
            yield service, address(listener)
        finally:
            server.handle_exit(15, None)
            server.handle_exit(15, None)
            thread.join(30)
        assert not thread.is_alive()
