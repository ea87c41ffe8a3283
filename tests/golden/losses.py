"""The losses of the first updates of a tiny model, for each scheme.

    python tests/golden/losses.py       # writes losses.json; say in the commit why it changed

Sentences of the built-in grammar, a word an id; float32 on a CPU, one thread.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import torch

from shapeshift.data.grammar import generate
from shapeshift.data.store import TokenStore
from shapeshift.data.store import write_store as write_pairs
from shapeshift.model import ModelConfig, build
from shapeshift.positions import SCHEMES
from shapeshift.training.checkpoints import Checkpoints
from shapeshift.training.config import TrainingConfig
from shapeshift.training.log import Log, read_log
from shapeshift.training.observer import Observer
from shapeshift.training.trainer import Trainer

TARGET = Path(__file__).with_suffix(".json")
SPECIAL, VOCAB = 5, 600
NUM_UPDATES = 8


def write_store(folder: Path) -> TokenStore:
    """Write 200 pairs; every word of either side has a number of its own."""
    numbers: dict[str, int] = {}

    def encode(text: str) -> list[int]:
        return [
            numbers.setdefault(w, SPECIAL + len(numbers) % (VOCAB - SPECIAL)) for w in text.split()
        ]

    texts = generate(200, seed=1, min_words=3, max_words=12)
    pairs = ((encode(english), encode(german)) for english, german in texts)
    return write_pairs(folder / "store", pairs, source_size=VOCAB, target_size=VOCAB)


def losses_of(scheme: str, store: TokenStore, folder: Path) -> list[float]:
    """Train `NUM_UPDATES` updates on one thread; return the loss of each."""
    config = TrainingConfig(
        max_updates=NUM_UPDATES,
        batch={"max_sentences": 12},
        accumulation=2,
        schedule={"name": "inverse_sqrt", "peak": 0.003, "warmup_updates": 4},
        clip_norm=1.0,
        precision="fp32",
        device="cpu",
        log_every=1,
        checkpoint_every=NUM_UPDATES,
        validate_every=NUM_UPDATES,
    )
    shape = {"dim": 32, "num_heads": 2, "ff_dim": 64, "encoder_layers": 2, "decoder_layers": 2}
    torch.manual_seed(7)
    model = build(ModelConfig(**shape, dropout=0.1), SCHEMES[scheme], VOCAB, VOCAB)
    folder.mkdir()
    trainer = Trainer(model, config, store, store, Checkpoints(folder / "checkpoints", 10))
    log, threads = Log(folder, 0), torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        trainer.fit(log, Observer())
    finally:
        log.close()
        torch.set_num_threads(threads)
    return [line["loss"] for line in read_log(folder / "log.jsonl") if "loss" in line]


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        store = write_store(folder)
        losses = {scheme: losses_of(scheme, store, folder / scheme) for scheme in SCHEMES}
    lines = [f'  "{name}": {json.dumps([round(x, 6) for x in x])}' for name, x in losses.items()]
    TARGET.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
