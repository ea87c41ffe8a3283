"""Which claims a profile tests, from the spread of earlier results and the paper's effect."""

import pytest

from shapeshift.study import power
from shapeshift.study.catalogue import find_paper
from shapeshift.study.power import Spread
from shapeshift.study.spec import ClaimSpec

from .test_verdicts_by_chance import NUM_STUDIES, share

PAIRS = (({"k": "1"}, {"k": "0"}),)


def claim(rule="better", **options):
    options |= {"at_least": 0.0} if rule == "threshold" else {"pairs": PAIRS}
    return ClaimSpec(claim="It is.", rule=rule, **options)


def spread(seeds, sentences, **options):
    named = {"profile": "tiny", "grid": "shape:table2", "quantity": "BLEU", "degrees": 2}
    return Spread(**{**named, **options}, seeds=seeds, sentences=sentences)


@pytest.fixture
def known(monkeypatch):
    """Sets the spreads that earlier runs have shown."""
    return lambda *found: monkeypatch.setattr(power, "read_spreads", lambda: found)


@pytest.mark.parametrize("num_seeds", [3, 5])
@pytest.mark.parametrize(
    ("rule", "effect", "noises"),
    [("better", 2.0, (0.5, 0.3)), ("better", 1.0, (0.1, 0.5)), ("better", 3.0, (1.5, 0.0)),
     ("equivalent", 0.0, (0.15, 0.05)), ("no worse", 0.2, (0.3, 0.1))],
)  # fmt: skip
def test_the_power_is_the_share_of_simulated_studies_whose_verdict_is_supported(
    rule, effect, noises, num_seeds
):
    supported = share([(rule, [effect])], num_seeds, *noises, wrong=["supported"])
    expected = power.power(claim(rule), spread(*noises), num_seeds, effect=effect)
    assert 0.05 < expected < 0.999, "a case that decides nothing"
    assert supported == pytest.approx(expected, abs=3 * (0.25 / NUM_STUDIES) ** 0.5)


@pytest.mark.parametrize("rule", ["better", "equivalent", "no worse", "threshold"])
def test_what_is_detectable_is_found_with_a_power_of_08(rule):
    sizes = [power.detectable(claim(rule), spread(0.7, 0.4), n) for n in (3, 5)]
    assert sizes[0] > sizes[1] > 1.0
    if rule == "better":
        assert power.power(claim(), spread(0.7, 0.4), 3, effect=sizes[0]) == pytest.approx(0.8)
        assert power.power(claim(), spread(0.7, 0.4), 2, effect=99) == 0  # no verdict


def test_more_parts_and_a_stricter_level_take_power():
    given = claim(), spread(0.5, 0.3), 3
    alone = power.power(*given, effect=2.0)
    assert power.power(*given, effect=2.0, num_parts=3) == pytest.approx(alone**3)
    assert power.power(*given, effect=2.0, level=0.01) < alone


def test_the_papers_effect_decides_and_ours_has_no_part_in_it(known):
    """The profile of the paper tests everything; others what they would find, if it is known."""
    studies = find_paper("shape").studies
    table1, table2 = studies["table1"], studies["table2"]

    def made(study, profile="tiny"):
        return [x.is_made for x in power.plan_tests(study.spec.claims, study.grid, profile)]

    for seeds, expected in ((0.5, True), (8.0, False)):
        known(spread(seeds, 0.3, quantity="BLEU lost"))
        assert made(table1) == [expected]
    assert made(table1, "paper") == [True]
    known(spread(0.03, 0.02))
    by_text = dict(zip((x.claim for x in table2.spec.claims), made(table2), strict=True))
    assert by_text["On Extrapolate RPE translates better than APE."]  # 0.64 BLEU
    known(spread(0.5, 0.3), spread(0.03, 0.0, quantity="speed"))
    assert not any(made(table2))
    known()
    assert made(table1) == [True]  # nothing is known, so that the interval decides
    assert made(studies["figure2"]) == [False]


def test_a_grids_own_spread_counts_before_that_of_others_in_the_profile(known):
    known(
        spread(3.0, 0.0, degrees=2),
        spread(1.0, 0.0, degrees=6),
        spread(9.0, 9.0, grid="shaw:table2"),
        spread(99.0, 9.0, profile="small"),
    )
    own = power.find_spread("tiny", "shape:table2", "BLEU")
    assert (own.seeds, own.sentences, own.degrees) == (pytest.approx(3**0.5), 0.0, 8)
    other = power.find_spread("tiny", "nhk:table2", "BLEU")
    assert other.degrees == 10
    assert power.find_spread("tiny", "nhk:table2", "BLEU lost") is None


def test_claims_of_a_study_share_the_level(known):
    """Each of two that are tested has half of the level, which Holm's correction takes."""
    given = claim(effect=2.4, pairs=PAIRS)
    grid = find_paper("shape").studies["table2"].grid
    known(spread(0.6, 0.2))
    [alone] = power.plan_tests([given], grid, "tiny")
    both = power.plan_tests([given, given], grid, "tiny")
    assert alone.is_made
    assert both[0].power < alone.power


def test_the_file_of_spreads_is_read_as_it_was_written(tmp_path):
    found = (spread(0.512, 0.25), spread(1.0, 0.0, quantity="BLEU lost, each lengths"))
    power.write_spreads(reversed(found), tmp_path / "spread.csv")
    assert power.read_spreads(tmp_path / "spread.csv") == found
