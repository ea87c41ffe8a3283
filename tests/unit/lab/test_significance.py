"""Paired tests on made-up systems whose answer is known."""

import random

import pytest
from sacrebleu.significance import PairedTest

from shapeshift.config import parse_config
from shapeshift.errors import ShapeshiftError
from shapeshift.evaluation.metrics import SACREBLEU
from shapeshift.lab.cell_folder import CellFolder
from shapeshift.lab.grid import Cell
from shapeshift.lab.significance import (
    LEVEL,
    Comparison,
    compare,
    compare_cells,
    summarise,
)

rng = random.Random(1)
WORDS = [f"word{n}" for n in range(60)]
REFERENCES = [" ".join(rng.choices(WORDS, k=8)) for _ in range(80)]


def corrupt(share, seed):
    """Translations with a share of their words replaced."""
    draw = random.Random(seed)
    return [
        " ".join(draw.choice(WORDS) if draw.random() < share else w for w in line.split())
        for line in REFERENCES
    ]


SYSTEMS = {
    "base": {1: corrupt(0.3, 1), 2: corrupt(0.3, 2)},
    "better": {1: corrupt(0.1, 3), 2: corrupt(0.1, 4)},
    "alike": {1: corrupt(0.3, 5), 2: corrupt(0.3, 6)},
    "same": {1: corrupt(0.3, 1), 2: corrupt(0.3, 2)},
}


@pytest.fixture(scope="module")
def found():
    results = compare(SYSTEMS, REFERENCES, baseline="base", num_samples=200)
    return {one.system: one for one in results}


def test_a_system_with_fewer_errors_is_better_and_one_with_as_many_is_not(found):
    assert list(found) == ["better", "alike", "same"]
    better = found["better"]
    assert better.difference > 15
    assert better.p_value < LEVEL
    assert max(better.p_values.values()) < 0.01
    assert abs(found["alike"].difference) < 5
    assert found["alike"].p_value > LEVEL
    [worse] = compare(
        {name: SYSTEMS[name] for name in ("better", "base")},
        REFERENCES,
        baseline="better",
        num_samples=200,
    )
    assert worse.difference == -better.difference
    assert worse.p_value < LEVEL


def test_equal_scores_do_not_differ(found):
    assert found["same"].difference == 0
    assert found["same"].p_values == {1: 1.0, 2: 1.0}
    assert found["same"].p_value == 1.0
    systems = {"a": {1: ["six"] * 5}, "b": {1: ["seven eight"] * 5}}  # equally wrong
    [wrong] = compare(systems, ["one two three four five"] * 5, baseline="a")
    assert (wrong.difference, wrong.p_value) == (0.0, 1.0)


@pytest.mark.parametrize("metric", ["bleu", "chrf"])
@pytest.mark.parametrize("name", ["better", "alike"])
def test_one_seed_and_file_has_sacrebleu_s_own_result_to_the_digit(metric, name):
    pair = {each: {1: SYSTEMS[each][1]} for each in ("base", name)}
    [found] = compare(pair, REFERENCES, baseline="base", metric=metric, num_samples=200)
    test = PairedTest(
        [(each, outputs[1]) for each, outputs in pair.items()],
        {"metric": SACREBLEU[metric]("13a")},
        [REFERENCES],
        test_type="bs",
        n_samples=200,
    )
    [base, other] = next(results for title, results in test()[1].items() if title != "System")
    assert (found.baseline_score, found.score) == (base.score, other.score)
    assert found.p_value == other.p_value < 1


def test_each_of_several_files_counts_alike_and_is_drawn_from_by_itself():
    """Ten sentences in which a system is perfect, seventy in which it is worse."""
    system = REFERENCES[:10] + corrupt(0.4, 9)[10:]
    pair = {"base": {1: SYSTEMS["base"][1]}, "system": {1: system}}
    files = [slice(0, 10), slice(10, 80)]
    given = {"baseline": "base", "num_samples": 200}
    [mean] = compare(pair, REFERENCES, **given, files=files)
    alone = [
        compare(
            {name: {1: by_seed[1][part]} for name, by_seed in pair.items()},
            REFERENCES[part],
            **given,
        )[0]
        for part in files
    ]
    assert mean.difference == pytest.approx(sum(one.difference for one in alone) / 2)
    assert alone[1].difference < 0 < mean.difference
    assert mean.p_value < LEVEL
    [whole] = compare(pair, REFERENCES, **given)
    assert whole.difference < mean.difference
    assert compare(pair, REFERENCES, **given, files=[slice(None)]) == [whole]


def test_what_two_systems_lose_is_compared_on_the_same_draws():
    before = {name: {1: REFERENCES} for name in ("base", "other")}
    given = {"baseline": "base", "num_samples": 200}

    def lost(name, other):
        after = {"base": SYSTEMS[name], "other": SYSTEMS[other]}
        [found] = compare(before, REFERENCES, **given, minus=after)
        return found

    [plain] = compare(
        {"base": {1: SYSTEMS["base"][1]}, "other": {1: SYSTEMS["better"][1]}}, REFERENCES, **given
    )
    both = lost("base", "better")
    assert both.difference == pytest.approx(-plain.difference)  # what was there before is alike
    assert both.score == pytest.approx(100 - plain.score)
    assert both.p_value == plain.p_value < 0.05
    assert lost("base", "alike").p_value > LEVEL
    assert lost("base", "same").p_value == 1.0


def test_seeds_that_contradict_each_other_prove_nothing():
    systems = {
        "base": {1: corrupt(0.3, 1), 2: corrupt(0.1, 2), 3: corrupt(0.1, 3)},
        "wild": {1: corrupt(0.0, 4), 2: corrupt(0.3, 5), 3: corrupt(0.3, 6)},
    }
    [wild] = compare(systems, REFERENCES, baseline="base", num_samples=200)
    own = [
        compare({name: {seed: by_seed[seed]} for name, by_seed in systems.items()}, REFERENCES,
                baseline="base", num_samples=200)[0]
        for seed in (1, 2, 3)
    ]  # fmt: skip
    assert [one.difference > 0 for one in own] == [True, False, False]
    assert all(one.p_value < LEVEL for one in own)  # each by itself is sure
    agrees = [(one.difference > 0) == (wild.difference > 0) for one in own]
    assert [p == 1.0 for p in wild.p_values.values()] == [not each for each in agrees]
    assert wild.p_value > LEVEL


@pytest.mark.parametrize(
    ("p_values", "combined"),
    [
        ({1: 0.04}, 0.04),
        ({1: 0.04, 2: 0.04}, 0.08),
        ({1: 0.001, 2: 0.03, 3: 0.02}, 0.034),
        ({1: 0.9, 2: 0.4}, 1.0),
    ],
)
def test_p_values_of_seeds_become_twice_their_mean(p_values, combined):
    assert Comparison("a", "b", "bleu", 2.0, 1.0, p_values).p_value == pytest.approx(combined)


def test_what_cannot_be_compared():
    with pytest.raises(ShapeshiftError, match="'better' has the seeds 1 but 'base' has 1, 2"):
        compare(
            {"base": SYSTEMS["base"], "better": {1: SYSTEMS["better"][1]}},
            REFERENCES,
            baseline="base",
        )
    with pytest.raises(ShapeshiftError, match="unknown baseline 'bass'"):
        compare(SYSTEMS, REFERENCES, baseline="bass")


@pytest.fixture
def scored(tmp_path):
    """Makes a cell that has translated, and the root of all."""

    def make(position, outputs, references, *settings, seed=1):
        config = parse_config({}, [f"position={position}", f"training.seed={seed}", *settings])
        cell = Cell("mine", "tiny", {"position": position}, seed, config)
        results = CellFolder(tmp_path / cell.key).run / "results"
        results.mkdir(parents=True, exist_ok=True)
        for name, lines in (("average", outputs), ("references", references)):
            (results / f"test.{name}.txt").write_text("\n".join(lines) + "\n", "utf-8")
        return cell

    return make, tmp_path


def test_cells_are_compared_seed_by_seed(scored):
    make, root = scored
    ape, rpe = (
        [make(position, SYSTEMS[name][seed], REFERENCES, seed=seed) for seed in (1, 2)]
        for position, name in (("ape", "base"), ("rpe", "better"))
    )
    found = compare_cells(rpe, ape, root)
    assert found.cells == tuple(cell.key for cell in (*rpe, *ape))
    assert found.p_value < LEVEL
    named = {"test": SYSTEMS["better"], "against": SYSTEMS["base"]}
    [same] = compare(named, REFERENCES, baseline="against")
    assert (found.score, found.p_values) == (same.score, same.p_values)
    half = [number < 40 for number in range(80)]
    part = compare_cells(rpe, ape, root, wanted=half)
    assert part.score != found.score
    with pytest.raises(ShapeshiftError, match="'test' has the seeds 1 but 'against' has 1, 2"):
        compare_cells(rpe[:1], ape, root)
    other = make("rpe", SYSTEMS["better"][1], ["x", *REFERENCES[1:]])
    with pytest.raises(ShapeshiftError, match="against other references"):
        compare_cells([other], ape[:1], root)


def test_summaries():
    some = summarise([1.0, 2.0, 6.0])
    assert (some.mean, some.median, some.num_values) == (3.0, 2.0, 3)
    assert some.stdev == pytest.approx(7**0.5)  # (4 + 1 + 9) / (3 − 1)
    assert summarise([4.0]).stdev == 0.0


def test_cells_are_compared_with_their_own_tokenizer(scored):
    make, root = scored

    def against(*tokenizers):
        ape, rpe = (
            make(position, [line] * 20, ["abcdefgh"] * 20, f"evaluation.tokenize={tokenizer}")
            for position, line, tokenizer in zip(
                ("ape", "rpe"), ("abcdefgx", "abcdefgh"), tokenizers, strict=True
            )
        )
        return compare_cells([rpe], [ape], root)

    assert against("13a", "13a").baseline_score == 0.0
    assert against("char", "char").baseline_score > 50
    with pytest.raises(ShapeshiftError, match=r"tokenizer 13a, and that of .* char; they"):
        against("13a", "char")
