"""The configuration that `shapeshift init` writes; tests/integration/test_init.py trains it."""

import re

import pytest

from shapeshift.config import parse_config
from shapeshift.data.config import FilesCorpus
from shapeshift.data.survey import survey
from shapeshift.lab.suggest import suggest
from shapeshift.yaml_file import parse_yaml


@pytest.mark.parametrize("num_pairs", [200, 1_500, 12_000])
def test_the_comment_says_how_often_training_reads_the_text(num_pairs):
    found = survey((f"{n} a b c d e f g", f"{n} h i j k l m n") for n in range(num_pairs))
    text = suggest(
        FilesCorpus(source="en", target="de", train=["a"], valid=["b"], test=["c"]), found, 0
    )
    training = parse_config(parse_yaml(text)).training
    tokens = 1.4 * 8 * num_pairs
    [epochs] = re.findall(r"the training text about (\d+) times", text)
    read = training.max_updates * training.batch.max_tokens
    assert int(epochs) == pytest.approx(read / tokens, abs=0.5)
