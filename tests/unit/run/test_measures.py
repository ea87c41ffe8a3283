"""Measures: found by name, and the scores of splits that consist of several files."""

import re
import sys

import pytest

from shapeshift._system.errors import ShapeshiftError
from shapeshift.data.prepare import prepare
from shapeshift.data.subwords import SEPARATOR
from shapeshift.evaluation.scores import sha256_lines
from shapeshift.run.measures import (
    MEASURES,
    SCORE_TEST,
    Metric,
    Result,
    check_measures,
    files_of,
    find_measure,
    kept_lines,
    measure_training,
    take,
)
from shapeshift.training.log import read_log


def test_a_measure_is_found_by_name_and_imported_when_it_is_due(tmp_path, monkeypatch):
    (tmp_path / "my_measures.py").write_text("def mine(run, data):\n    return []\nNONE = 3\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert all(callable(find_measure(name)) for name in MEASURES)
    check_measures(["my_measures:mine"])
    assert "my_measures" not in sys.modules
    assert find_measure("my_measures:mine")(None, None) == []
    with pytest.raises(ShapeshiftError, match="no measure 'my_measures:NONE': expected"):
        find_measure("my_measures:NONE")
    for missing in ("my_measures:YOURS", "your_measures:YOURS"):
        with pytest.raises(ShapeshiftError, match=r"no measure '(my|your)_measures:YOURS': "):
            find_measure(missing)
    with pytest.raises(ShapeshiftError, match=r"'score-tset'; did you mean 'score-test'"):
        check_measures(["score-test", "score-tset"])


@pytest.fixture
def two_sets(make_run):
    """A run whose test split has two files, of 21 and of 12 pairs."""
    updates = "training.max_updates=15"
    return make_run("data.corpus.test=[test, valid]", updates, "evaluation.length_buckets=[4]")


def test_each_file_of_a_split_is_scored_and_their_mean(two_sets, monkeypatch):
    """Translations that copy the references of the second file, and are wrong for the first."""
    run, data = two_sets
    _, references = data.text("test")
    hypotheses = ["wrong"] * 21 + references[21:]

    def translate(self, sources):
        return iter(hypotheses)

    monkeypatch.setattr("shapeshift.decoding.translator.Translator.translate", translate)
    rows = SCORE_TEST(run, data)
    chrf = {m.split: m for m in rows if m.metric == "chrF2" and not m.bucket}
    assert set(chrf) == {"test", "test/test", "test/valid", "test mean"}
    assert chrf["test/valid"].value == pytest.approx(100)
    assert chrf["test/valid"].hypotheses == sha256_lines(references[21:])
    assert chrf["test mean"].value == pytest.approx((chrf["test/test"].value + 100) / 2)
    assert chrf["test mean"].signature == chrf["test/valid"].signature
    assert {m.bucket for m in rows if m.bucket} == {"≥ 4"}  # no shorter one has four words
    assert kept_lines(run.directory, "test", "files") == ["0 21", "21 33"]


def test_bleu_is_not_needed_for_another_score(make_run):
    run, data = make_run("training.max_updates=15", "evaluation.metrics=[chrf]")
    rows = SCORE_TEST(run, data)
    assert {(m.metric, m.split) for m in rows if not m.bucket} == {
        ("chrF2", "test"), ("chrF2", "test mean")
    }  # fmt: skip
    assert {m.metric for m in rows if m.bucket} == {"BLEU"}


def test_files_of_joined_pairs_begin_with_a_group_of_their_own(make_config, tmp_path):
    """Of 21 and 12 pairs, four of which are joined."""
    dataset = "data.recipe={name: interpolate, num_joined: 4}"
    joined = make_config("data.corpus.test=[test, valid]", dataset)
    data = prepare(joined.data, tmp_path / "joined")
    assert files_of(data, "test") == {"test/test": slice(0, 6), "test/valid": slice(6, 9)}
    sources, _ = data.text("test")
    assert [source.count(SEPARATOR) + 1 for source in sources] == [*[4] * 5, 1, *[4] * 3]


def test_training_leaves_its_losses_speed_time_and_size(two_sets):
    run, _ = two_sets
    rows = measure_training(run)
    losses = {m.update: m.value for m in rows if m.metric == "valid_loss"}
    log = read_log(run.directory / "log.jsonl")
    [logged] = [line["valid_loss"] for line in log if "valid_loss" in line]
    assert losses == {15: logged, None: logged}
    values = {m.metric: m.value for m in rows if m.update is None}
    assert values["tokens_per_s"] > 0
    assert values["training_s"] > 0
    assert values["parameters"] == sum(p.numel() for p in run.model().parameters())


OWN = """\
from shapeshift.run.measures import Metric, Result, declares


@declares(Metric("a", splits=("test",), examples="values"))
def undeclared(run, data):
    return [Result(metric="b", value=1.0)]


@declares(Metric("a", splits=("test",), examples="values"))
def without_examples(run, data):
    return [Result(metric="a", value=1.0, split="test")]


@declares(Metric("a", splits=("test",)))
def of_no_split(run, data):
    return [Result(metric="a", value=1.0)]


def nothing(run, data):
    pass


def not_finite(run, data):
    return [Result(metric="a", value=float("nan"))]


def anything(run, data):
    yield Result(metric="b", value=1.0)
"""


def test_a_measure_of_ones_own_finds_what_it_declares(tmp_path, monkeypatch):
    (tmp_path / "declared.py").write_text(OWN, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    for name, problem in (
        ("undeclared", "declared:undeclared does not declare 'b' (known: a)"),
        ("without_examples", "declared:without_examples: a has no examples, which it declares"),
        ("nothing", "nothing: expected a list of Result, got None"),
        ("not_finite", "declared:not_finite: value: "),
        ("of_no_split", "declared:of_no_split: a has split=None; it declares test"),
    ):
        with pytest.raises(ShapeshiftError, match=re.escape(problem)):
            take(f"declared:{name}", None, None)
    assert [x.metric for x in take("declared:anything", None, None)] == ["b"]
    with pytest.raises(ValueError, match=r"a is 2.0, and the mean of its examples 1.0"):
        Result(metric="a", value=2.0, examples=(0.5, 1.5))


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"better": "Lower"}, "better='Lower'; expected one of None, 'higher', 'lower'"),
        ({"examples": "value"}, "examples='value'; expected one of None, 'texts', 'values'"),
        ({"examples": "texts"}, "examples='texts' without a setting"),
        ({"splits": "test"}, "splits='test'; expected a tuple of names"),
    ],
)
def test_a_metric_says_what_can_be_understood(given, problem):
    with pytest.raises(ShapeshiftError, match=f"the metric 'a' has {problem}"):
        Metric("a", **given)
