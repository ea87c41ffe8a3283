"""The table that `shapeshift init` prints of a text."""

from shapeshift.cli.init import _table
from shapeshift.data.config import FilesCorpus
from shapeshift.data.survey import survey

CORPUS = FilesCorpus(source="en", target="de", train=["a"], valid=["a"], test=["a"])


def test_95_percent_of_the_sentences_are_no_longer_than_the_longest():
    lengths = [*range(6, 20), 20]
    found = survey([("a " * length, "b") for length in lengths])
    table = _table({"train": found, "valid": survey([("a b", "c")])}, CORPUS)
    assert table.rows[1][1:] == ("13.0 / 19 / 20", "2.0 / 2 / 2")
