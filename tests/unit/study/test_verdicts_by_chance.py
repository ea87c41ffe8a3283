"""How often verdicts are wrong where chance alone decides: simulated claims whose parts all lie on
their limit, where a wrong verdict is likeliest."""

from statistics import NormalDist

import numpy as np
import pytest

from shapeshift.run.measures import BLEU
from shapeshift.study.significance import LEVEL, Comparison, compare
from shapeshift.study.spec import ClaimSpec
from shapeshift.study.verdicts import Part, judge

NUM_CLAIMS = 400
MARGIN = 0.5
NOISE = 3 * (LEVEL * (1 - LEVEL) / NUM_CLAIMS) ** 0.5
"""Three standard deviations of the share that is counted."""


def claim(rule):
    if rule == "threshold":
        return ClaimSpec(claim="It is.", rule=rule, at_least=MARGIN)
    margin = {} if rule == "better" else {"margin": MARGIN}
    return ClaimSpec(claim="It is.", rule=rule, pairs=(({"k": "1"}, {"k": "0"}),), **margin)


def simulated(rng, truth, num_seeds, seed_noise, sentence_noise):
    """A part: the seeds' differences vary by themselves and, all together, by the choice of the
    sentences, about which each seed's own test knows."""
    common = rng.normal(0, sentence_noise / 2**0.5)
    own = rng.normal(0, sentence_noise / 2**0.5, num_seeds)
    found = truth + common + own + rng.normal(0, seed_noise, num_seeds)
    values = dict(enumerate(found.tolist()))
    mean = found.mean()
    p_values = {
        seed: 2 * NormalDist().cdf(-abs(value) / sentence_noise) if value * mean > 0 else 1.0
        for seed, value in values.items()
    }
    base = dict.fromkeys(values, 30.0)
    scores = {seed: 30.0 + value for seed, value in values.items()}
    return Part(values, Comparison(scores, base, p_values), metric=BLEU)


def verdicts(rule, truths, num_seeds, seed_noise, sentence_noise=1e-9):
    """The verdict of each of many claims whose parts have these true values."""
    rng = np.random.default_rng(1)
    given = claim(rule)
    for _ in range(NUM_CLAIMS):
        parts = {
            str(n): simulated(rng, truth, num_seeds, seed_noise, sentence_noise)
            for n, truth in enumerate(truths)
        }
        yield judge(given, parts, "paper")


@pytest.mark.parametrize(("num_parts", "num_seeds"), [(1, 3), (4, 5), (16, 3)])
@pytest.mark.parametrize(
    ("rule", "truth", "seed_noise"),
    [
        ("no worse", -MARGIN, 0.3),
        ("equivalent", MARGIN, 0.3),
        ("equivalent", -MARGIN, 3.0),  # so much noise that chance reaches both margins
        ("threshold", MARGIN, 0.3),
    ],
)
def test_parts_on_the_limit_seldom_contradict_a_claim(
    rule, truth, seed_noise, num_parts, num_seeds
):
    found = [*verdicts(rule, [truth] * num_parts, num_seeds, seed_noise)]
    assert found.count("contradicted") / NUM_CLAIMS <= LEVEL + NOISE


@pytest.mark.parametrize("num_parts", [1, 4])
@pytest.mark.parametrize(
    ("rule", "truth"), [("no worse", -MARGIN), ("equivalent", MARGIN), ("threshold", MARGIN)]
)
def test_a_part_on_the_limit_seldom_lets_a_claim_be_supported(rule, truth, num_parts):
    """The others are safe: nothing else keeps the claim from being supported."""
    safe = 50.0 if rule != "equivalent" else 0.0
    found = [*verdicts(rule, [truth, *[safe] * (num_parts - 1)], 3, 0.1)]
    assert 0 < found.count("supported") / NUM_CLAIMS <= LEVEL + NOISE


@pytest.mark.parametrize("num_parts", [1, 4, 16])
@pytest.mark.parametrize("seed_noise", [0.0, 0.5, 3.0])
def test_equal_systems_are_seldom_better_or_worse(num_parts, seed_noise):
    """Whether sentences or seeds differ: with 3.0 each seed's own test is all but sure."""
    found = [*verdicts("better", [0.0] * num_parts, 3, seed_noise, sentence_noise=0.5)]
    wrong = found.count("supported") + found.count("contradicted")
    assert wrong / NUM_CLAIMS <= LEVEL + NOISE


@pytest.mark.parametrize(
    ("rule", "truth", "expected"),
    [
        ("better", 4.0, "supported"),
        ("better", -4.0, "contradicted"),
        ("no worse", 0.5, "supported"),
        ("no worse", -4.0, "contradicted"),
        ("equivalent", 0.0, "supported"),
        ("equivalent", 4.0, "contradicted"),
        ("threshold", 4.0, "supported"),
        ("threshold", -4.0, "contradicted"),
    ],
)
def test_clear_effects_are_found(rule, truth, expected):
    """Four parts, three seeds; otherwise a rule that never decides would pass."""
    found = [*verdicts(rule, [truth] * 4, 3, 0.06, sentence_noise=0.06)]
    assert found.count(expected) / NUM_CLAIMS > 0.8


@pytest.mark.slow
def test_translations_that_are_equally_good_are_seldom_better_or_worse():
    """From texts on: the bootstrap of four systems whose words are wrong equally often."""
    rng, num_claims = np.random.default_rng(2), 80
    references = [" ".join(map(str, rng.integers(0, 50, 12))) for _ in range(60)]

    def translated():
        return [
            " ".join(word if rng.random() > 0.2 else "wrong" for word in line.split())
            for line in references
        ]

    wrong = 0
    for _ in range(num_claims):
        baseline = {seed: translated() for seed in (1, 2, 3)}
        parts = {}
        for name in "abcd":
            system = {seed: translated() for seed in (1, 2, 3)}
            test = compare(system, baseline, references, num_samples=300)
            parts[name] = Part(test.differences, test, metric=BLEU)
        wrong += judge(claim("better"), parts, "paper") != "inconclusive"
    assert wrong / num_claims <= LEVEL + 3 * (LEVEL * (1 - LEVEL) / num_claims) ** 0.5
