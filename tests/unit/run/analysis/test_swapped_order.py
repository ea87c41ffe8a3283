import pytest

from shapeshift.data.subwords import SEP
from shapeshift.decoding.search import Hypothesis
from shapeshift.run.analysis.swapped_order import parts, sample, translate

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
        self.translate, self.runner = translate, self

    def search(self, sources):
        results = []
        for source in sources:
            ids = []
            for sentence in self.translate(parts(source)):
                ids += [*sentence, SEP]
            results.append([Hypothesis(ids[:-1], 0.0, 0.0), Hypothesis(GARBAGE, -1.0, -1.0)])
        return results


PAIRS = [(JOINED, JOINED), ([*SECOND, SEP, *FIRST], [*SECOND, SEP, *FIRST])]


def only_first(sentences):
    return [sentences[0], *(GARBAGE for _ in sentences[1:])]


@pytest.mark.parametrize(("rule", "swapped"), [(list, True), (only_first, False)])
def test_only_the_first_sentence_is_compared_in_each_order(rule, swapped):
    references, original, moved = translate(Rigged(rule), PAIRS)
    assert references == [Words().decode_target(x) for x in (FIRST, SECOND)]
    assert original == references
    assert (moved == references) == swapped


def test_references_are_decoded_target_ids_of_the_first_sentence():
    other_language = [([*FIRST, SEP, *SECOND], [*THIRD, SEP, *FIRST])]
    to_third = Rigged(lambda sentences: [THIRD if each == FIRST else each for each in sentences])
    references, right, _ = translate(to_third, other_language)
    assert references == right == [Words().decode_target(THIRD)]
    assert translate(Rigged(), other_language)[1] != references


def test_a_sample_is_drawn_without_repeats_and_depends_on_the_seed(make_store):
    store = make_store([([5 + n, SEP, 6], [7, SEP, 5 + n]) for n in range(18)])
    drawn = sample(store, 9, seed=1)
    firsts = [source[0] for source, _ in drawn]
    assert len(set(firsts)) == 9
    assert firsts == sorted(firsts)
    assert all(source[0] == target[-1] for source, target in drawn)
    assert sample(store, 9, seed=1) == drawn != sample(store, 9, seed=2)
    assert len(sample(store, 100)) == 18


def test_a_last_pair_that_joining_left_alone_is_left_out(make_store):
    good = ([5, SEP, 6], [7, SEP, 8])
    assert sample(make_store([good, good, ([9], [9])])) == [good, good]
