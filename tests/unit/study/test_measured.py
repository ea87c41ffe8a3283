"""What a study finds in the folders of runs; the records are made by hand."""

from collections import Counter
from dataclasses import replace
from statistics import fmean
from types import SimpleNamespace

import numpy as np
import pytest

from shapeshift._system.errors import ShapeshiftError
from shapeshift.config import parse_config
from shapeshift.evaluation.metrics import score_corpus
from shapeshift.run.measures import keep_lines, mean_of
from shapeshift.run.record import RunFolder
from shapeshift.study.grid import PlannedRun
from shapeshift.study.measured import Measured

from .conftest import REFERENCES, put, result

WORSE = [f"a dog number {n} sat on a blue mat" for n in range(20)]
LENGTHS = [5] * 10 + [50] * 10
"""Source lengths: the second half is long."""


def plan_run(position, seed, *settings):
    config = parse_config({"position": position, "training": {"seed": seed}}, settings)
    return PlannedRun("mine", "tiny", {"position": position}, seed, config, ("score-test",))


RUNS = [plan_run(position, seed) for position in ("ape", "shape") for seed in (1, 2, 3)]


def make_study(root, runs=RUNS):
    """The study of runs in a folder, whose text has the `LENGTHS`."""
    measured = Measured(runs, root, root / "prepared")
    store = SimpleNamespace(source_lengths=np.array(LENGTHS))
    measured.prepared = lambda planned: SimpleNamespace(store=lambda split: store)
    return measured


def compare(measured, test="shape", against="ape", **options):
    return measured.compare({"position": test}, {"position": against}, **options)


def compared(root, runs=RUNS, **options):
    return compare(make_study(root, runs), **options).comparison


@pytest.fixture
def scored(tmp_path):
    """`ape` gets the long sentences wrong; `shape` gets all right; each has three seeds."""
    test, valid = mean_of("test"), mean_of("valid")
    for planned in RUNS:
        better = planned.axes["position"] == "shape"
        found = [
            result("BLEU", 20.0 + planned.seed + 10 * better, split=test),
            result("BLEU", 50.0, split=test, bucket="[0, 10)"),
            result("BLEU", 5.0, split=test, update=7),
            result("BLEU", 99.0, split=valid),
            result("chrF", 1.0, split=test),
        ]
        lines = REFERENCES if better else REFERENCES[:10] + WORSE[10:]
        put(tmp_path, planned, found, hypotheses=lines)
    return tmp_path


def test_rows_are_those_of_a_metric_with_the_settings_asked_for(scored):
    measured = make_study(scored)
    rows = measured.rows("BLEU", {"position": "shape"}, split=mean_of("test"))
    assert [(row.seed, row.value) for row in rows] == [(1, 31.0), (2, 32.0), (3, 33.0)]
    some = measured.rows("BLEU", {"position": ["ape"], "seed": (1, 3)}, split=mean_of("test"))
    assert [row.value for row in some] == [21.0, 23.0]
    [short] = measured.rows("BLEU", {"position": "ape", "seed": 1}, bucket="[0, 10)")
    assert short.value == 50.0
    assert len(measured.rows("BLEU")) == 12  # test and valid
    frame = measured.frame()
    assert frame.value.tolist() == [row.value for row in measured.results]
    assert frame["axis:position"].tolist() == [row.axes["position"] for row in measured.results]


def test_a_run_from_an_archive_has_no_weights_and_says_what_to_do(scored):
    (folder := scored / RUNS[0].key / "run").mkdir(exist_ok=True)
    (folder / "config.yaml").write_text(RUNS[0].config.to_yaml())
    with pytest.raises(
        ShapeshiftError, match=r"results without weights, .*; remove the folders"
    ) as e:
        make_study(scored).run(RUNS[0])
    assert all(planned.key in str(e.value) for planned in RUNS)
    (folder / "subwords").mkdir()
    assert make_study(scored).run(RUNS[0]).directory == folder


def test_unfinished_cells_are_left_out(scored):
    missing = plan_run("rpe", 1)
    half = plan_run("learned", 1)
    put(scored, half, [result("parameters", 7.0)], measures=("train",))
    measured = make_study(scored, [*RUNS, missing, half])
    assert measured.settings("position") == ["ape", "shape", "rpe", "learned"]
    assert measured.finished() == RUNS
    assert {row.axes["position"] for row in measured.results} == {"ape", "shape"}
    assert compare(measured, "rpe").reason == "no finished run with position = rpe"


def test_a_comparison_tests_the_seeds_that_both_systems_have(scored):
    full = compared(scored)
    assert list(full.p_values) == [1, 2, 3]
    assert full.difference > 0
    assert full.p_value < 0.05
    some = [planned for planned in RUNS if planned.name != "shape/2"]
    part = compare(make_study(scored, some))
    assert [*part.values] == [1, 3]
    assert part.values[1] == pytest.approx(100 - full.baseline_score)
    assert list(part.comparison.p_values) == [1, 3]


def test_different_models_are_not_compared_as_seeds_of_one(scored):
    with pytest.raises(ShapeshiftError, match=r"'position' is left open \(ape, shape\), and"):
        make_study(scored).compare({}, {"position": "ape"})


def test_lengths_choose_the_sentences_that_are_compared(scored):
    short, long = (compared(scored, lengths=x) for x in ((1, 50), (50, None)))
    assert (short.difference, short.p_value) == (0.0, 1.0)
    assert long.score == pytest.approx(100.0)
    assert long.p_value < 0.05
    assert 0 < compared(scored).difference < long.difference


def test_of_several_files_the_mean_is_tested(scored):
    """Of which the first has one sentence alone, in which `shape` is no better."""
    for planned in RUNS:
        run = RunFolder(scored / planned.key).run
        keep_lines(run, "test", "files", ["0 1", f"1 {len(REFERENCES)}"])
    mean = compared(scored)
    ape, files = REFERENCES[:10] + WORSE[10:], (slice(0, 1), slice(1, None))
    bleu = [score_corpus(ape[x], REFERENCES[x], ("bleu",))[0].value for x in files]
    assert mean.baseline_score == pytest.approx(sum(bleu) / 2)


def test_texts_that_do_not_compare_are_refused(scored):
    run = RunFolder(scored / RUNS[0].key).run
    keep_lines(run, "test", "references", ["x", *REFERENCES[1:]])
    with pytest.raises(ShapeshiftError, match="against other references"):
        compared(scored)
    char = plan_run("shape", 1, "evaluation.tokenize=char")
    for planned in (RUNS[0], char):
        put(scored, planned, hypotheses=REFERENCES)
    with pytest.raises(ShapeshiftError, match=r"tokenizer of BLEU than .*: 13a and char"):
        compared(scored, [RUNS[0], char])


def test_what_is_computed_is_kept_until_a_checkpoint_changes_or_it_is_damaged(scored):
    computed = scored / "computed"
    first = compared(scored)
    [path] = computed.iterdir()
    text, version = path.read_text(encoding="utf-8"), path.stat().st_ino
    assert compared(scored) == first
    assert path.stat().st_ino == version
    for damaged in ("{", text.replace("2000", "2001")):
        path.write_text(damaged, encoding="utf-8")
        assert compared(scored) == first
        assert path.read_text(encoding="utf-8") == text
    put(scored, RUNS[0], hypotheses=REFERENCES, checkpoint="another")
    assert compared(scored).difference < first.difference
    compare(make_study(scored), "ape", "shape")
    compared(scored, split="valid")
    assert len([*computed.iterdir()]) == 4


def test_scores_and_tests_are_made_again_with_another_tokenizer(scored):
    found = {}
    for tokenizer in ("auto", "char", "auto"):
        setting = f"evaluation.tokenize={tokenizer}"
        runs = [plan_run(planned.axes["position"], planned.seed, setting) for planned in RUNS]
        for planned in runs:
            put(scored, planned)
            config = RunFolder(scored / planned.key).run / "config.yaml"
            config.write_text(planned.config.to_yaml(), encoding="utf-8")
        bleu = make_study(scored, runs).scores(runs[0]).scores[0]
        assert compared(scored, runs).baseline_score == pytest.approx(bleu.value)
        found[bleu.signature.split("|")[3]] = bleu.value
    assert found["tok:13a"] != found["tok:char"]
    names = (path.name.partition("-")[0] for path in (scored / "computed").iterdir())
    assert Counter(names) == {"scores": 2, "comparison": 2, "lengths": 2}


def test_results_of_a_text_are_made_again_where_it_is_not(scored):
    """As in docs/results, which keeps no text of a corpus of files."""

    def study(root):
        text = f"source: en, target: de, train: [a], valid: [a], test: [a], root: {root}"
        setting = f"data.corpus={{corpus: files, {text}}}"
        return [plan_run(planned.axes["position"], planned.seed, setting) for planned in RUNS]

    def results(measured, runs):
        long = compare(measured, lengths=(50, None)).comparison
        return long, measured.scores(runs[0]), measured.has_few(runs[0], "test", (50, None))

    for planned in (runs := study("here")):
        better = planned.axes["position"] == "shape"
        put(scored, planned, hypotheses=REFERENCES if better else REFERENCES[:15] + WORSE[15:])
    found = results(make_study(scored, runs), runs)
    assert found[0].difference > 0
    for path in scored.glob("*/run/results/*.txt"):
        path.unlink()
    runs = study("there")
    assert results(Measured(runs, scored, scored / "prepared"), runs) == found


ERRORS = """\
from shapeshift.run.measures import Metric, declares


@declares(Metric("error", better="lower", splits=("test",), examples={!r}))
def errors(run, data):
    pass
"""


@pytest.fixture
def measure_errors(tmp_path, monkeypatch):
    """Makes the study of runs with what `change` of a run makes of their errors."""

    def make(change, examples="values"):
        (tmp_path / f"errors_{examples}.py").write_text(ERRORS.format(examples), encoding="utf-8")
        monkeypatch.syspath_prepend(tmp_path)
        runs = [replace(planned, measures=(f"errors_{examples}:errors",)) for planned in RUNS]
        for planned in runs:
            put(tmp_path, planned, change(planned))
        return make_study(tmp_path, runs)

    return make


@pytest.mark.parametrize("examples", [None, "values"])
def test_less_of_what_is_better_lower_is_a_gain(examples, measure_errors):
    """The values of twenty examples: those of `shape` are lower, more so for each seed."""

    def change(planned):
        less = (planned.axes["position"] == "shape") * (1 + planned.seed / 10)
        values = tuple(5.0 + n % 3 - less for n in range(20)) if examples else ()
        return [result("error", fmean(values or (6.0 - less,)), split="test", examples=values)]

    part = compare(measure_errors(change, examples), metric="error")
    assert part.values == pytest.approx({1: 1.1, 2: 1.2, 3: 1.3})
    assert part.comparison.difference == pytest.approx(-1.2)
    assert part.comparison.p_value < 0.05
    assert bool(part.comparison.p_values) == (examples is not None)


def of_whole(planned, **changed):
    return result("error", 5.0, split="test", examples=(5.0,) * 20, **changed)


def test_only_seeds_that_measured_a_metric_on_both_sides_are_compared(measure_errors):
    def change(planned):
        lacks = planned.axes["position"] == "ape" and planned.seed == 2
        return [] if lacks else [of_whole(planned)]

    part = compare(measure_errors(change), metric="error")
    assert part.values.keys() == {1, 3}


def test_examples_of_other_texts_are_not_paired(measure_errors):
    def change(planned):
        return [of_whole(planned, references="a" if planned.seed == 2 else "b")]

    with pytest.raises(ShapeshiftError, match="have other texts, and so no examples of error"):
        compare(measure_errors(change), metric="error")


def test_the_examples_of_a_part_are_not_those_of_the_whole(measure_errors):
    def change(planned):
        part = result("error", 9.0, split="test", bucket="long", examples=(9.0,) * 20)
        return [of_whole(planned), part]

    measured = measure_errors(change)
    assert measured.examples(RUNS[0], measured.metric("error"), "test") == [5.0] * 20
