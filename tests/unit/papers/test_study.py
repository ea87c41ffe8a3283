"""What a study finds in the folders of cells; the records are made by hand."""

from types import SimpleNamespace

import numpy as np
import pytest

from shapeshift.config import parse_config
from shapeshift.errors import ShapeshiftError
from shapeshift.evaluation.metrics import score_corpus
from shapeshift.lab.cell_folder import CellFolder
from shapeshift.lab.grid import Cell
from shapeshift.lab.measures import keep_lines, mean_of, references_file
from shapeshift.papers import study as studies
from shapeshift.papers.study import Study

from .conftest import REFERENCES, measured, put

WORSE = [f"a dog number {n} sat on a blue mat" for n in range(20)]
LENGTHS = [5] * 10 + [50] * 10
"""Source lengths: the second half is long."""


def make_cell(position, seed, *settings):
    config = parse_config({"position": position, "training": {"seed": seed}}, settings)
    return Cell("mine", "tiny", {"position": position}, seed, config, ("score-test",))


CELLS = [make_cell(position, seed) for position in ("ape", "shape") for seed in (1, 2, 3)]


def make_study(root, cells=CELLS):
    return Study(cells, root, root / "prepared")


def compare(study, test="shape", against="ape", *given, **options):
    return study.compare({"position": test}, {"position": against}, *given, **options)


def compared(root, cells=CELLS, *given, **options):
    return compare(make_study(root, cells), "shape", "ape", *given, **options).comparison


def with_lengths(monkeypatch, study):
    store = SimpleNamespace(source_lengths=np.array(LENGTHS))
    monkeypatch.setattr(study, "prepared", lambda cell: SimpleNamespace(store=lambda split: store))


@pytest.fixture
def scored(tmp_path):
    """`ape` gets the long sentences wrong; `shape` gets all right; each has three seeds."""
    for cell in CELLS:
        better = cell.axes["position"] == "shape"
        found = [
            measured("BLEU", 20.0 + cell.seed + 10 * better, dataset=mean_of("test")),
            measured("BLEU", 50.0, dataset=mean_of("test"), bucket="[0, 10)"),
            measured("BLEU", 5.0, dataset=mean_of("test"), step=7),
            measured("BLEU", 99.0, dataset=mean_of("valid")),
            measured("chrF", 1.0, dataset=mean_of("test")),
        ]
        lines = REFERENCES if better else REFERENCES[:10] + WORSE[10:]
        put(tmp_path, cell, found, hypotheses=lines)
    return tmp_path


def test_rows_are_those_of_a_metric_with_the_settings_asked_for(scored):
    study = make_study(scored)
    rows = study.rows("BLEU", {"position": "shape"}, dataset=mean_of("test"))
    assert [(row.seed, row.value) for row in rows] == [(1, 31.0), (2, 32.0), (3, 33.0)]
    some = study.rows("BLEU", {"position": ["ape"], "seed": (1, 3)}, dataset=mean_of("test"))
    assert [row.value for row in some] == [21.0, 23.0]
    [short] = study.rows("BLEU", {"position": "ape", "seed": 1}, bucket="[0, 10)")
    assert short.value == 50.0
    assert len(study.rows("BLEU")) == 12  # test and valid
    assert study.rows("COMET") == []


def test_all_measurements_are_a_data_frame(scored):
    study = make_study(scored)
    frame = study.frame()
    assert frame.value.tolist() == [row.value for row in study.results]
    assert frame["axis:position"].tolist() == [row.axes["position"] for row in study.results]


def test_unfinished_cells_are_left_out(scored):
    missing = make_cell("rpe", 1)
    half = make_cell("learned", 1)
    put(scored, half, [measured("parameters", 7.0)], steps=("train",))
    study = make_study(scored, [*CELLS, missing, half])
    assert study.settings("position") == ["ape", "shape", "rpe", "learned"]
    assert [cell.seed for cell in study.finished({"position": "ape"})] == [1, 2, 3]
    assert not study.is_finished(missing)
    assert not study.is_finished(half)
    assert len(study.cells()) == 8
    assert study.rows("BLEU", {"position": "rpe"}) == []
    assert study.rows("parameters", {"position": "learned"}) == []
    assert compare(study, "rpe").reason == "no finished run with position = rpe"


def test_a_comparison_tests_the_seeds_that_both_systems_have(scored):
    full = compared(scored)
    assert list(full.p_values) == [1, 2, 3]
    assert full.difference > 0
    assert full.p_value < 0.05
    some = [cell for cell in CELLS if cell.name != "shape/2"]
    part = compare(make_study(scored, some))
    assert [*part.values] == [1, 3]
    assert part.values[1] == pytest.approx(100 - full.baseline_score)
    assert list(part.comparison.p_values) == [1, 3]


def test_lengths_choose_the_sentences_that_are_compared(scored, monkeypatch):
    study = make_study(scored)
    with_lengths(monkeypatch, study)
    short, long = (compare(study, lengths=x).comparison for x in ((1, 50), (50, None)))
    assert (short.difference, short.p_value) == (0.0, 1.0)
    assert long.score == pytest.approx(100.0)
    assert long.baseline_score < 50
    assert long.p_value < 0.05
    whole = compare(study).comparison
    assert 0 < whole.difference < long.difference


def test_of_several_files_the_mean_is_tested(scored):
    """Of which the first has one sentence alone, in which `shape` is no better."""
    for cell in CELLS:
        results = CellFolder(scored / cell.key).run / "results"
        keep_lines(results / "test.files.txt", ["0 1", f"1 {len(REFERENCES)}"])
    mean = compared(scored)
    ape, files = REFERENCES[:10] + WORSE[10:], (slice(0, 1), slice(1, None))
    bleu = [score_corpus(ape[x], REFERENCES[x], ("bleu",))[0].value for x in files]
    assert mean.baseline_score == pytest.approx(sum(bleu) / 2)
    assert mean.baseline_score > score_corpus(ape, REFERENCES, ("bleu",))[0].value
    whole = compared(scored, lengths=None, split="valid")
    assert whole.difference > mean.difference


def test_texts_that_do_not_compare_are_refused(scored):
    results = CellFolder(scored / CELLS[0].key).run / "results"
    keep_lines(results / references_file("test"), ["x", *REFERENCES[1:]])
    with pytest.raises(ShapeshiftError, match="against other references"):
        compared(scored)
    char = make_cell("shape", 1, "evaluation.tokenize=char")
    for cell in (CELLS[0], char):
        put(scored, cell, hypotheses=REFERENCES)
    with pytest.raises(ShapeshiftError, match=r"tokenizer 13a, and that of .* has char; they"):
        compared(scored, [CELLS[0], char])


def test_a_comparison_is_computed_again_when_a_checkpoint_changes(scored, monkeypatch):
    calls = []
    real = studies.compare_cells
    monkeypatch.setattr(
        studies, "compare_cells", lambda *args, **kwargs: calls.append(1) or real(*args, **kwargs)
    )
    first = compared(scored)
    assert compared(scored) == first
    assert len(calls) == 1
    put(scored, CELLS[0], hypotheses=REFERENCES, checkpoint="another")
    now = compared(scored)
    assert len(calls) == 2
    assert now.difference < first.difference
    compare(make_study(scored), "ape", "shape")
    compared(scored, split="valid")
    assert len(calls) == 4


def test_what_cannot_be_read_again_is_computed_again(scored):
    first = compared(scored)
    [path] = (scored / "computed").iterdir()
    text = path.read_text(encoding="utf-8")
    for damaged in ("{", text.replace("2000", "2001")):
        path.write_text(damaged, encoding="utf-8")
        assert compared(scored) == first
        assert path.read_text(encoding="utf-8") == text


def test_scores_and_tests_are_made_again_with_another_tokenizer(scored, monkeypatch):
    def study(tokenizer):
        setting = f"evaluation.tokenize={tokenizer}"
        cells = [make_cell(c.axes["position"], c.seed, setting) for c in CELLS]
        for cell in cells:
            put(scored, cell)
            config = CellFolder(scored / cell.key).run / "config.yaml"
            config.write_text(cell.config.to_yaml(), encoding="utf-8")
        made = make_study(scored, cells)
        with_lengths(monkeypatch, made)
        return made, cells[0]

    found = {}
    for tokenizer in ("auto", "char", "auto"):
        made, cell = study(tokenizer)
        scores = made.scores(cell)
        comparison = compare(made).comparison
        assert comparison.baseline_score == pytest.approx(scores.find("BLEU").value)
        found.setdefault(scores.find("BLEU").signature.split("|")[3], []).append(comparison)
    assert {name: len(each) for name, each in found.items()} == {"tok:13a": 2, "tok:char": 1}
    assert found["tok:13a"][0].difference != found["tok:char"][0].difference
    assert len(list((scored / "computed").iterdir())) == 4
