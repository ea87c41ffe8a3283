"""Paired tests on made-up systems whose answer is known."""

import random

import pytest
from sacrebleu.significance import PairedTest

from shapeshift.evaluation.metrics import SACREBLEU
from shapeshift.study.significance import LEVEL, Comparison, compare

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


def against(name, baseline="base", seeds=(1, 2), **options):
    """Compare two of the systems."""
    pair = ({seed: SYSTEMS[each][seed] for seed in seeds} for each in (name, baseline))
    return compare(*pair, REFERENCES, num_samples=200, **options)


def test_a_system_with_fewer_errors_is_better_and_one_with_as_many_is_not():
    better, worse = against("better"), against("base", "better")
    assert better.difference == -worse.difference > 15
    assert max(better.p_value, worse.p_value) < LEVEL
    assert against("alike").p_value > LEVEL
    same = against("same")
    assert (same.difference, same.p_value) == (0.0, 1.0)


@pytest.mark.parametrize("metric", ["bleu", "chrf"])
@pytest.mark.parametrize("name", ["better", "alike"])
def test_one_seed_and_file_has_sacrebleu_s_own_result_to_the_digit(metric, name):
    result = against(name, seeds=[1], metric=metric)
    test = PairedTest(
        [(each, SYSTEMS[each][1]) for each in ("base", name)],
        {"metric": SACREBLEU[metric]("13a")},
        [REFERENCES],
        test_type="bs",
        n_samples=200,
    )
    [base, other] = next(results for title, results in test()[1].items() if title != "System")
    assert (result.baseline_score, result.score) == (base.score, other.score)
    assert result.p_value == other.p_value < 1


def test_each_of_several_files_counts_alike_and_is_drawn_from_by_itself():
    """Ten sentences in which a system is perfect, seventy in which it is worse."""
    pair = REFERENCES[:10] + corrupt(0.4, 9)[10:], SYSTEMS["base"][1]
    files = [slice(0, 10), slice(10, 80)]

    def compared(part=slice(None), **options):
        own, base = ({1: lines[part]} for lines in pair)
        return compare(own, base, REFERENCES[part], num_samples=200, **options)

    mean, alone = compared(files=files), [compared(part) for part in files]
    assert mean.difference == pytest.approx(sum(one.difference for one in alone) / 2)
    assert alone[1].difference < 0 < mean.difference
    assert mean.p_value < LEVEL
    assert compared().difference < mean.difference
    assert compared(files=[slice(None)]) == compared()


def test_what_two_systems_lose_is_compared_on_the_same_draws():
    minus = SYSTEMS["better"], SYSTEMS["base"]
    lost = compare({1: REFERENCES}, {1: REFERENCES}, REFERENCES, num_samples=200, minus=minus)
    plain = against("better", seeds=[1])
    assert lost.difference == pytest.approx(-plain.difference)  # what was there before is alike
    assert lost.p_value == plain.p_value < LEVEL


def test_the_error_over_sentences_is_that_of_another_text():
    """Halves of the text are other texts: the error of one is twice the root larger."""
    whole = against("better")
    sides, halves = [SYSTEMS["better"], SYSTEMS["base"]], []
    for part in (slice(0, 40), slice(40, 80)):
        own, base = ({seed: lines[part] for seed, lines in side.items()} for side in sides)
        halves.append(compare(own, base, REFERENCES[part], num_samples=200))
    assert halves[0].error == pytest.approx(2**0.5 * whole.error, rel=0.3)
    apart = abs(halves[0].difference - halves[1].difference)
    assert 0 < apart < 3 * (halves[0].error ** 2 + halves[1].error ** 2) ** 0.5
    assert against("same").error == 0


def test_seeds_that_contradict_each_other_prove_nothing():
    base = {1: corrupt(0.3, 1), 2: corrupt(0.1, 2), 3: corrupt(0.1, 3)}
    wild = {1: corrupt(0.0, 4), 2: corrupt(0.3, 5), 3: corrupt(0.3, 6)}
    all_seeds = compare(wild, base, REFERENCES, num_samples=200)
    own = [compare({x: wild[x]}, {x: base[x]}, REFERENCES, num_samples=200) for x in base]
    assert [one.difference > 0 for one in own] == [True, False, False]
    assert all(one.p_value < LEVEL for one in own)  # each by itself is sure
    agrees = [(one.difference > 0) == (all_seeds.difference > 0) for one in own]
    assert [p == 1.0 for p in all_seeds.p_values.values()] == [not each for each in agrees]
    assert all_seeds.p_value > LEVEL


@pytest.mark.parametrize(
    ("p_values", "combined"),
    [({1: 0.04}, 0.04), ({1: 0.001, 2: 0.03, 3: 0.02}, 0.034), ({1: 0.9, 2: 0.4}, 1.0)],
)
def test_p_values_of_seeds_become_twice_their_mean(p_values, combined):
    scores, baseline = dict.fromkeys(p_values, 2.0), dict.fromkeys(p_values, 1.0)
    assert Comparison(scores, baseline, p_values, 0.0).p_value == pytest.approx(combined)
