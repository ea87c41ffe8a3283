import pytest

from shapeshift.data.subwords import SEP
from shapeshift.decoding.search import Hypothesis
from shapeshift.errors import ShapeshiftError
from shapeshift.lab.analysis.swapped_order import compute, parts, sample, swap

FIRST, SECOND, THIRD = [5, 6, 7, 8], [9, 10, 11, 12, 13], [14, 15, 16, 17]
JOINED = [*FIRST, SEP, *SECOND, SEP, *THIRD]
GARBAGE = [23, 23, 23, 23]


class Words:
    """Writes an id as a word; the separator would be seen."""

    def decode_target(self, ids):
        return " ".join(f"w{each}" for each in ids)


class Rigged:
    """Translates by copying, as `translate` changes the list of sentences."""

    subwords = Words()

    def __init__(self, translate=lambda sentences: sentences):
        self.translate = translate

    def search(self, sources):
        results = []
        for source in sources:
            ids = []
            for sentence in self.translate(parts(source)):
                ids += [*sentence, SEP]
            results.append([Hypothesis(ids[:-1], 0.0, 0.0), Hypothesis(GARBAGE, -1.0, -1.0)])
        return results


PAIRS = [(JOINED, JOINED), ([*SECOND, SEP, *FIRST], [*SECOND, SEP, *FIRST])]


def only(searcher, pairs=PAIRS):
    [system] = compute({"it": searcher}, pairs).systems
    return system


def test_the_first_sentence_moves_to_the_end():
    assert swap(JOINED) == [*SECOND, SEP, *THIRD, SEP, *FIRST]
    assert parts(swap(JOINED)) == [SECOND, THIRD, FIRST]


def test_parts_may_be_empty():
    assert parts([SEP, 5, SEP]) == [[], [5], []]


def test_a_model_that_does_not_mind_order_loses_nothing():
    system = only(Rigged())
    assert system.original.bleu.value == system.swapped.bleu.value == pytest.approx(100)
    assert system.drop == pytest.approx(0)
    assert system.original.num_misparted == system.swapped.num_misparted == 0


def test_a_model_that_knows_the_beginning_alone_loses_everything():
    system = only(Rigged(lambda sentences: [sentences[0], *(GARBAGE for _ in sentences[1:])]))
    assert system.original.bleu.value == pytest.approx(100)
    assert system.swapped.bleu.value == pytest.approx(0)
    assert system.drop == pytest.approx(100)


def test_what_becomes_of_the_other_sentences_is_not_scored():
    def break_neighbours(sentences):
        return [each if each in (FIRST, SECOND) else GARBAGE for each in sentences]

    assert only(Rigged(break_neighbours), [PAIRS[0]]).drop == pytest.approx(0)


def test_outputs_with_another_number_of_sentences_are_counted():
    merge_three = Rigged(lambda sentences: sentences[:2])
    system = only(merge_three)
    assert (system.original.num_misparted, system.swapped.num_misparted) == (1, 1)


def test_references_are_decoded_target_ids_of_the_first_sentence():
    other_language = [([*FIRST, SEP, *SECOND], [*THIRD, SEP, *FIRST])]
    to_third = Rigged(lambda sentences: [THIRD if each == FIRST else each for each in sentences])
    assert only(to_third, other_language).original.bleu.value == pytest.approx(100)
    assert only(Rigged(), other_language).original.bleu.value < 50


def test_progress_is_told_of_both_orders():
    told = []
    compute({"it": Rigged()}, PAIRS, lambda *progress: told.append(progress))
    assert told == [("it", 4, 4)]


def test_a_sample_is_drawn_without_repeats_and_depends_on_the_seed(make_store):
    store = make_store([([5 + n, SEP, 6], [7, SEP, 5 + n]) for n in range(18)])
    drawn = sample(store, 9, seed=1)
    firsts = [source[0] for source, _ in drawn]
    assert len(set(firsts)) == 9
    assert firsts == sorted(firsts)
    assert all(source[0] == target[-1] for source, target in drawn)
    assert sample(store, 9, seed=1) == drawn != sample(store, 9, seed=2)
    assert len(sample(store, 100)) == 18


@pytest.mark.parametrize("pair", [([5], [6]), ([5, SEP, 6], [7]), ([5, SEP, 6], [7, SEP, SEP])])
def test_a_pair_that_is_not_joined_is_refused(pair, make_store):
    with pytest.raises(ShapeshiftError, match=r"pair 1 .* expected joined sentences"):
        sample(make_store([([5, SEP, 6], [7, SEP, 8]), pair, ([5, SEP, 6], [7, SEP, 8])]))


def test_a_last_pair_that_joining_left_alone_is_left_out(make_store):
    joined = [([5 + n, SEP, 6], [7, SEP, 5 + n]) for n in range(3)]
    assert sample(make_store([*joined, ([9], [9])])) == joined


@pytest.mark.parametrize("last", [([5, SEP, 6], [7]), ([5], [7, SEP, 8])])
def test_a_last_pair_that_is_joined_on_one_side_is_refused(last, make_store):
    with pytest.raises(ShapeshiftError, match=r"pair 1 .* expected joined sentences"):
        sample(make_store([([5, SEP, 6], [7, SEP, 8]), last]))


def test_a_store_of_one_pair_that_is_not_joined_is_refused(make_store):
    with pytest.raises(ShapeshiftError, match=r"pair 0 .* expected joined sentences"):
        sample(make_store([([5], [6])]))


def test_nothing_to_translate_is_refused():
    with pytest.raises(ShapeshiftError, match="1 systems and 0 pairs"):
        compute({"it": Rigged()}, [])
