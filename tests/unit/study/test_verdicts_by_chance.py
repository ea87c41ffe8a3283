"""How often a study has a wrong verdict where chance alone decides: 1,000 simulated studies, whose
parts all lie on the limit of their claim, where either verdict is wrong and likeliest."""

from itertools import islice, product
from statistics import fmean

import numpy as np
import pytest

from shapeshift.run.measures import BLEU
from shapeshift.study.power import PlannedTest
from shapeshift.study.significance import LEVEL, Comparison, compare
from shapeshift.study.spec import ClaimSpec
from shapeshift.study.verdicts import Part, findings

NUM_STUDIES = 1000
MARGIN = 0.5
LIMIT = {"better": 0.0, "no worse": -MARGIN, "equivalent": MARGIN, "threshold": MARGIN}
"""Rule → a value on the limit."""


def noise(count):
    """Three standard deviations of a share of 5 % that is counted in some studies."""
    return 3 * (LEVEL * (1 - LEVEL) / count) ** 0.5


def claim(rule):
    if rule == "threshold":
        return ClaimSpec(claim="It is.", rule=rule, at_least=MARGIN)
    margin = {} if rule == "better" else {"margin": MARGIN}
    return ClaimSpec(claim="It is.", rule=rule, pairs=(({"k": "1"}, {"k": "0"}),), **margin)


def simulated(rng, truth, num_seeds, seed_noise, sentence_noise, *, is_compared):
    """A part: the values of the seeds vary by themselves and, together, by the choice of sentences,
    which a comparison knows; a value of the runs themselves is about one text."""
    common = rng.normal(0, sentence_noise) * is_compared
    found = truth + common + rng.normal(0, seed_noise, num_seeds)
    values = dict(enumerate(found.tolist()))
    if not is_compared:
        return Part(values)
    scores = {seed: 30.0 + value for seed, value in values.items()}
    ones = dict.fromkeys(values, 1.0)
    test = Comparison(scores, dict.fromkeys(values, 30.0), ones, sentence_noise)
    return Part(values, test, metric=BLEU)


def verdicts(claims, num_seeds, *noises):
    """Yield the verdicts of each study; `claims` are a rule and the true values of its parts,
    `noises` the standard deviations over seeds and over sentences."""
    rng = np.random.default_rng(1)
    specs = [claim(rule) for rule, _ in claims]
    for _ in range(NUM_STUDIES):
        parts = [
            {
                str(n): simulated(rng, truth, num_seeds, *noises, is_compared=rule != "threshold")
                for n, truth in enumerate(truths)
            }
            for rule, truths in claims
        ]
        tests = (PlannedTest(spec, True) for spec in specs)
        yield [x.verdict for x in findings([*zip(tests, parts, strict=True)])]


def share(claims, *arguments, wrong=("supported", "contradicted")):
    """Return the share of studies that have any of the wrong verdicts."""
    return fmean(bool({*wrong} & {*each}) for each in verdicts(claims, *arguments))


SHORT = [
    ("better", 1, 3, 0.3, 0.3),
    ("better", 4, 5, 0.2, 0.4),
    ("no worse", 1, 5, 0.2, 0.4),
    ("equivalent", 1, 3, 0.1, 0.2),
    ("equivalent", 4, 3, 3.0, 0.3),  # so much noise that chance reaches both margins
    ("threshold", 1, 5, 0.3, 0.0),
    ("threshold", 4, 3, 0.3, 0.0),
]
LONG = [
    pytest.param(*each, marks=pytest.mark.slow)
    for each in product(LIMIT, (1, 2, 4, 8, 24), (3, 5), (0.1, 0.3, 3.0), (0.05, 0.3))
]


@pytest.mark.parametrize(
    ("rule", "num_parts", "num_seeds", "seed_noise", "sentence_noise"), [*SHORT, *LONG]
)
def test_claims_on_their_limit_seldom_get_a_verdict(
    rule, num_parts, num_seeds, seed_noise, sentence_noise
):
    claims = [(rule, [LIMIT[rule]] * num_parts)]
    found = share(claims, num_seeds, seed_noise, sentence_noise)
    assert found <= LEVEL + noise(NUM_STUDIES)


@pytest.mark.parametrize(
    ("num_parts", "seed_noise"),
    [(1, 0.2), *[pytest.param(x, y, marks=pytest.mark.slow) for x in (2, 8) for y in (0.1, 1.0)]],
)
def test_the_claims_of_a_study_count_together(num_parts, seed_noise):
    claims = [(rule, [truth] * num_parts) for rule, truth in LIMIT.items()]
    assert share(claims, 3, seed_noise, 0.2) <= LEVEL + noise(NUM_STUDIES)
    alone = [share([each], 3, seed_noise, 0.2) for each in claims]
    assert num_parts > 1 or sum(alone) > 2 * LEVEL  # so it takes the correction


@pytest.mark.parametrize("rule", LIMIT)
def test_a_part_on_the_limit_seldom_lets_a_claim_be_supported(rule):
    """The other is safe: nothing else keeps the claim from being supported."""
    claims = [(rule, [LIMIT[rule], 50.0 if rule != "equivalent" else 0.0])]
    found = share(claims, 3, 0.1, 0.1, wrong=["supported"])
    assert 0 < found <= LEVEL / 2 + noise(NUM_STUDIES)


def test_equal_models_seldom_contradict_that_they_are_equal():
    claims = [("no worse", [0.0] * 2), ("equivalent", [0.0] * 2)]
    assert share(claims, 3, 3.0, 0.3, wrong=["contradicted"]) <= LEVEL


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
    """Two claims of four parts, three seeds; otherwise a rule that never decides would pass."""
    found = islice(verdicts([(rule, [truth] * 4)] * 2, 3, 0.06, 0.06), 50)
    assert sum(each == [expected] * 2 for each in found) > 40


@pytest.mark.slow
def test_translations_that_are_equally_good_are_seldom_better_or_worse():
    """From texts on: the bootstrap of four models whose words are wrong equally often."""
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
            outputs = {seed: translated() for seed in (1, 2, 3)}
            test = compare(outputs, baseline, references, num_samples=300)
            parts[name] = Part(test.differences, test, metric=BLEU)
        [found] = findings([(PlannedTest(claim("better"), True), parts)])
        wrong += found.verdict != "inconclusive"
    assert wrong / num_claims <= LEVEL + noise(num_claims)
