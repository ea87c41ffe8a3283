"""Data configuration: what is refused, and that reading it stays light."""

import subprocess
import sys

import pytest
from pydantic import TypeAdapter, ValidationError

from shapeshift.data.config import (
    DataConfig,
    Dataset,
    Extrapolate,
    FilesCorpus,
    GrammarCorpus,
    LengthSlice,
)


def test_importing_the_configuration_loads_no_heavy_package():
    code = (
        "import sys, shapeshift.data.config; "
        "print([x for x in ('torch', 'numpy', 'sentencepiece') if x in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.stdout.strip() == "[]", result.stderr


def test_a_corpus_and_a_dataset_are_chosen_by_name():
    config = DataConfig.model_validate(
        {
            "corpus": {
                "corpus": "files",
                "source": "en",
                "target": "de",
                "train": ["a", "b"],
                "valid": ["c"],
                "test": ["d"],
            },
            "dataset": {"name": "extrapolate", "max_length": 20},
        }
    )
    assert isinstance(config.corpus, FilesCorpus)
    assert config.corpus.prefixes("train") == ["a", "b"]
    assert config.dataset == Extrapolate(max_length=20)


def test_defaults_are_the_papers():
    datasets = TypeAdapter(Dataset)
    assert datasets.validate_python({"name": "extrapolate"}).max_length == 50
    assert datasets.validate_python({"name": "interpolate"}).num_joined == 10
    assert isinstance(DataConfig().corpus, GrammarCorpus)


@pytest.mark.parametrize(
    "document",
    [
        {"dataset": {"name": "extrapolated"}},
        {"dataset": {"name": "vanilla", "max_length": 50}},
        {"dataset": {"name": "interpolate", "num_joined": 1}},
        {"corpus": {"corpus": "grammar", "min_words": 9, "max_words": 8}},
        {"subwords": {"character_coverage": 0.97}},
        {"subword": {}},
    ],
)
def test_nonsense_is_refused(document):
    with pytest.raises(ValidationError):
        DataConfig.model_validate(document)


def test_an_empty_length_slice_is_refused_and_an_open_one_is_not():
    with pytest.raises(ValidationError, match=r"\[10, 10\)"):
        LengthSlice(min_length=10, max_length=10)
    assert LengthSlice(min_length=80).max_length is None


def test_both_sides_in_one_file_are_refused():
    with pytest.raises(ValidationError, match="source and target are both"):
        FilesCorpus(source="en", target="en", train=["a"], valid=["b"], test=["c"])
