"""Untrained models of a few thousand weights and small stores."""

import pytest
import torch

from shapeshift.data.store import write_store
from shapeshift.model import ModelConfig, build
from shapeshift.positions import PRESETS

VOCAB = 24


@pytest.fixture(scope="session")
def make_model():
    """preset → a model in float64, with the same weights wherever the preset has none of its own"""

    def make(preset):
        torch.manual_seed(3)
        config = ModelConfig(dim=16, num_heads=2, ff_dim=32, encoder_layers=2, decoder_layers=1)
        return build(config, PRESETS[preset], VOCAB, VOCAB).double().eval()

    return make


@pytest.fixture
def make_store(tmp_path):
    """pairs of ids → a token store"""

    def make(pairs, name="store", vocab=VOCAB):
        return write_store(tmp_path / name, pairs, source_size=vocab, target_size=vocab)

    return make


def flip(path):
    """Change one bit in the middle of a file."""
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def snapshot(folder):
    """Return path → content of all files, but for the curves of TensorBoard."""
    paths = [x for x in folder.rglob("*") if x.is_file() and "tensorboard" not in x.parts]
    return {x.relative_to(folder).as_posix(): x.read_bytes() for x in sorted(paths)}
