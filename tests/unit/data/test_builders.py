"""The papers' recipes on pairs small enough to see through."""

import pytest

from shapeshift._system.errors import ShapeshiftError
from shapeshift.config import parse_config
from shapeshift.data.builders import Pair, build
from shapeshift.data.config import (
    Extrapolate,
    Interpolate,
    LengthSlice,
    SubwordsConfig,
    Vanilla,
)
from shapeshift.data.filter import Dropped
from shapeshift.data.subwords import SEP, Subwords


def pair(source: int, target: int, number: int = 0) -> Pair:
    """A pair with these numbers of subwords."""
    ids = [10 + number] * source, [50 + number] * target
    return Pair(f"s{number}", f"t{number}", *ids, number=number)


def built(lengths, recipe, split="train"):
    dropped = Dropped()
    pairs = [pair(source, target, number) for number, (source, target) in enumerate(lengths)]
    result = list(build(pairs, recipe, split, dropped))
    return [(len(x.source_ids), len(x.target_ids)) for x in result], dropped


def test_extrapolate_keeps_up_to_its_limit_on_both_sides():
    kept, dropped = built([(5, 5), (6, 1), (1, 6), (6, 6), (0, 9)], Extrapolate(max_length=5))
    assert kept == [(5, 5)]
    assert dropped == {"source over 5 subwords": 2, "target over 5 subwords": 1, "empty source": 1}


def test_length_slice_is_half_open_and_looks_at_the_source():
    lengths = [(2, 9), (3, 9), (5, 1), (6, 4)]
    assert built(lengths, LengthSlice(min_length=3, max_length=6))[0] == [(3, 9), (5, 1)]
    assert built(lengths, LengthSlice(min_length=5))[0] == [(5, 1), (6, 4)]


@pytest.mark.parametrize("split", ["valid", "test"])
@pytest.mark.parametrize(
    "recipe", [Vanilla(), Extrapolate(max_length=2), LengthSlice(min_length=4, max_length=5)]
)
def test_held_out_splits_lose_nothing(recipe, split):
    lengths = [(3, 3), (0, 1), (1, 0), (9, 9)]
    assert built(lengths, recipe, split) == (lengths, {})


@pytest.mark.parametrize("split", ["train", "valid", "test"])
def test_interpolate_joins_neighbours_and_keeps_the_rest(split):
    pairs, dropped = [pair(1, 2, number) for number in range(5)], Dropped()
    first, second, rest = build(pairs, Interpolate(num_joined=2), split, dropped)
    assert first == Pair("s0 <sep> s1", "t0 <sep> t1", [10, SEP, 11], [50, 50, SEP, 51, 51])
    assert second.source_ids == [12, SEP, 13]
    assert rest == pairs[4]
    assert not dropped


def test_interpolate_joins_held_out_text_file_by_file():
    """The paper scores each newstest by itself."""
    pairs = [pair(1, 1, number) for number in range(8)]
    joined = build(pairs, Interpolate(num_joined=3), "test", Dropped(), lambda number: number // 4)
    sources = ["s0 <sep> s1 <sep> s2", "s3", "s4 <sep> s5 <sep> s6", "s7"]
    assert [each.source for each in joined] == sources


def test_interpolate_drops_empty_train_pairs_before_joining():
    pairs = [pair(1, 1, 0), pair(0, 1, 1), pair(1, 1, 2)]
    (joined,) = build(pairs, Interpolate(num_joined=2), "train", Dropped())
    assert joined.source == "s0 <sep> s2"
    first, _ = build(pairs, Interpolate(num_joined=2), "valid", Dropped())
    assert (first.source_ids, first.target_ids) == ([10, SEP], [50, SEP, 51])


OWN = """\
def short(pair, limit=9):
    return None if len(pair.source_ids) > limit else pair._replace(target_ids=pair.target_ids[:1])
def ids(pair):
    return pair.source_ids
def lower(pair):
    return pair._replace(source=pair.source.lower())
def beyond(pair):
    return pair._replace(target_ids=[5, 10_000])
def padded(pair):
    return pair._replace(target_ids=[5, 0])
"""


def test_text_that_a_recipe_of_ones_own_changes_is_encoded_again(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "own_text.py").write_text(OWN, encoding="utf-8")
    lines = [("The old Teacher sleeps.", "Er schläft."), ("the teacher", "der Lehrer")]
    config = SubwordsConfig(vocab_size=50)
    subwords = Subwords.train(lambda: lines, config, tmp_path / "subwords")
    text = "The old Teacher sleeps."
    [source], [target] = subwords.encode_source([text]), subwords.encode_target(["Er schläft."])
    pairs = [Pair(text, "Er schläft.", source, target)]

    def make(name):
        recipe = parse_config({"data": {"recipe": f"own_text:{name}"}}).data.recipe
        return list(build(pairs, recipe, "train", Dropped(), subwords=subwords))

    [made] = make("lower")
    assert made.source_ids == subwords.encode_source([text.lower()])[0] != source
    assert (made.source, made.target_ids) == (text.lower(), target)
    for wrong in ("beyond", "padded"):
        fault = rf"{wrong}: target_ids of pair 1 .* below \d+, got"
        with pytest.raises(ShapeshiftError, match=fault):
            make(wrong)
    monkeypatch.setattr(subwords, "presplit", True)
    with pytest.raises(ShapeshiftError, match=r"lower changes the source .*; change source_ids"):
        make("lower")


def test_a_recipe_of_ones_own_takes_or_leaves_training_pairs_and_counts_with_its_source(
    tmp_path, monkeypatch
):
    monkeypatch.syspath_prepend(tmp_path)
    for name, text in (("own_recipe", OWN), ("other_recipe", OWN + "\n")):
        (tmp_path / f"{name}.py").write_text(text, encoding="utf-8")
    recipe = parse_config({"data": {"recipe": "own_recipe:short"}}).data.recipe
    lengths = [(3, 3), (9, 9), (0, 1)]
    limited = recipe.model_copy(update={"options": {"limit": 5}})
    kept, dropped = built(lengths, limited)
    assert kept == [(3, 1)]
    assert dropped == {"left out by own_recipe:short": 1, "empty source": 1}
    assert built(lengths, limited, "test") == (lengths, {})
    other = parse_config({}, ["data.recipe.name=other_recipe:short"]).data.recipe
    assert recipe.source not in ("", other.source)
    assert parse_config({"data": {"recipe": recipe.model_dump()}}).data.recipe == recipe
    with pytest.raises(ShapeshiftError, match=r"no recipe 'own_recipe:long': .* has no 'long'"):
        parse_config({"data": {"recipe": "own_recipe:long"}})
    with pytest.raises(ShapeshiftError, match=r"these options: .*'limt'; correct"):
        parse_config({}, ["data.recipe={name: 'own_recipe:short', options: {limt: 1}}"])
    # A configuration that was saved is of the file as it was.
    saved = {"data": {"recipe": {**recipe.model_dump(), "source": "0" * 64}}}
    with pytest.raises(ShapeshiftError, match="is not the one of these settings"):
        built(lengths, parse_config(saved).data.recipe)
    assert parse_config(saved, ["data.recipe=other_recipe:short"]).data.recipe == other
    with pytest.raises(ShapeshiftError, match="expected a Pair or None, got list"):
        built([(1, 1)], parse_config({"data": {"recipe": "own_recipe:ids"}}).data.recipe)
