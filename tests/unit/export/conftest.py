"""Tiny models of random weights over the vocabulary of a real subword model."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from shapeshift.data.config import DataConfig, GrammarCorpus, SubwordsConfig
from shapeshift.data.prepare import prepare
from shapeshift.export.folder import Trained
from shapeshift.model import ModelConfig, build
from shapeshift.model.position_config import PositionConfig, spelled_out

TINY = {"dim": 32, "num_heads": 4, "ff_dim": 48, "encoder_layers": 2, "decoder_layers": 2}


@pytest.fixture(scope="session")
def data(tmp_path_factory):
    """The built-in corpus with one subword model for both languages."""
    return _prepare(tmp_path_factory.mktemp("data"), joint=True)


@pytest.fixture(scope="session")
def apart(tmp_path_factory):
    """The same with a subword model for each language."""
    return _prepare(tmp_path_factory.mktemp("apart"), joint=False)


def _prepare(folder, joint):
    config = DataConfig(
        corpus=GrammarCorpus(num_train=200, num_valid=5, num_test=5, max_words=8),
        subwords=SubwordsConfig(vocab_size=120, joint=joint),
    )
    return prepare(config, folder / "prepared")


def position_of(scheme):
    """Return the configuration of a scheme."""
    return PositionConfig(**spelled_out("mine", scheme))


@pytest.fixture(scope="session")
def make(data, apart):
    """Makes a model of a scheme; all that it consists of is random, biases and norms too."""

    def make(scheme, subwords=None, *, seed=3, noise=0.1, **settings):
        subwords = subwords or data.subwords
        shape = ModelConfig(**{**TINY, **settings})
        torch.manual_seed(seed)
        model = build(shape, scheme, subwords.source_size, subwords.target_size).eval()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter += noise * torch.randn_like(parameter)
        folder = (data if subwords is data.subwords else apart).directory / "subwords"
        trained = Trained(model, shape, position_of(scheme), subwords, folder, longest=(30, 25))
        return SimpleNamespace(trained=trained, model=model, shape=shape, subwords=subwords)

    return make
