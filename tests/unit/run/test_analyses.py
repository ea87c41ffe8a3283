"""Analyses of a model, and as measures of a run."""

import math

import pytest
import torch

from shapeshift._system.errors import ShapeshiftError
from shapeshift.data.subwords import SEP
from shapeshift.decoding.search import Hypothesis
from shapeshift.evaluation.metrics import score_corpus
from shapeshift.evaluation.scores import sha256_lines
from shapeshift.run.analysis import learning, similarity, swapped_order
from shapeshift.run.analysis.learning import SHIFTS
from shapeshift.run.analysis.similarity import compute, invariance
from shapeshift.run.analysis.swapped_order import parts, sample, translate
from shapeshift.run.measures import ORIGINAL, SWAPPED, kept_lines

SENTENCES = [[5, 6, 7, 8, 9, 10, 11], [12, 13], [20, 6, 21, 6, 22, 6]]
OFFSETS = (0, 7, 100, 250)
JOINED = ("data.recipe.name=interpolate", "data.recipe.num_joined=3", "decoding.beam=1")


@pytest.fixture
def relative(make_run):
    return make_run("position=rpe")


@pytest.fixture
def joined(make_run):
    return make_run("position=ape", *JOINED)


def test_a_relative_model_has_the_same_states_at_every_offset_and_an_absolute_one_has_not(
    relative, joined
):
    invariant, absolute = similarity.measure(*relative), similarity.measure(*joined)
    assert [m.bucket for m in invariant] == ["layer 0", "layer 1"]
    assert [m.value for m in invariant] == pytest.approx([1.0, 1.0], abs=1e-6)
    assert all(m.value < 0.999 for m in absolute)


def test_swapped_order_is_for_joined_pairs_alone(relative, joined):
    assert swapped_order.measure(*relative) == []
    assert {m.metric for m in learning.measure(*relative)} == {"BLEU", "shift_similarity"}
    rows = swapped_order.measure(*joined)
    orders = ["original order", "swapped order"]
    assert [m.bucket for m in rows if m.metric == "BLEU" and m.signature] == orders
    texts = (ORIGINAL, "average"), (SWAPPED, "average"), (ORIGINAL, "references")
    *outputs, references = (kept_lines(joined[0].directory, *each) for each in texts)
    for m, lines in zip(rows, outputs, strict=True):
        kept = lines, references
        assert [m.hypotheses, m.references] == [*map(sha256_lines, kept)]
        assert m.value == pytest.approx(score_corpus(*kept, ("bleu",))[0].value)


def test_learning_measures_the_last_checkpoint_of_each_eighth(make_run):
    kept = ("training.keep_checkpoints=9", "training.average_checkpoints=1")
    settings = ("training.max_updates=16", "training.checkpoint_every=1", *kept)
    run, data = make_run("position=shape", *JOINED, *settings)
    assert run.checkpoints.updates() == list(range(8, 17))
    rows = learning.measure(run, data)
    assert sorted({m.update for m in rows}) == [8, 10, 12, 14, 16]
    last = {(m.metric, m.bucket): m.value for m in rows if m.update == 16}
    layers = [f"layer {layer} to {most}" for most in SHIFTS for layer in (0, 1)]
    assert [bucket for metric, bucket in last if metric == "shift_similarity"] == layers
    assert last["shift_similarity", "layer 1 to 500"] == pytest.approx(
        similarity.measure(run, data)[1].value
    )
    swapped = {(m.metric, m.bucket): m.value for m in swapped_order.measure(run, data)}
    assert swapped.items() <= last.items()
    first = {(m.metric, m.bucket): m.value for m in rows if m.update == 8}
    key = ("shift_similarity", "layer 1 to 500")
    assert first[key] != last[key]


def test_learning_is_not_measured_where_training_kept_fewer_checkpoints(make_run, monkeypatch):
    own = ("training.keep_checkpoints=2", "training.average_checkpoints=1")
    run, data = make_run("training.max_updates=16", "training.checkpoint_every=1", *own)
    assert learning._last_of_eighths(run)[-1] == 16
    more = run.config.training.model_copy(update={"keep_checkpoints": 9})
    monkeypatch.setattr(run, "config", run.config.model_copy(update={"training": more}))
    with pytest.raises(ShapeshiftError, match=r"updates, such as \d+: .* remove the folder"):
        learning.measure(run, data)


def invariances(model):
    return invariance(compute(model, SENTENCES, OFFSETS)).mean(0).tolist()


@pytest.mark.parametrize("scheme", ["nope", "rpe", "rope", "alibi", "t5"])
def test_a_shift_invariant_encoder_has_similarity_one(scheme, make_model):
    model = make_model(scheme).train()  # dropout plays no part
    assert invariances(model) == pytest.approx([1, 1, 1], abs=1e-10)
    assert model.training


def test_the_embeddings_of_one_zero_token_are_compared_by_their_encodings_alone(make_model):
    """Token 0 has a zero embedding, and sinusoids of one frequency turn by the angle of the shift:
    cos(PE(i), PE(i + k)) = (2/D) Σ_m cos(k / 10000^(2m/D)) for every i."""
    model = make_model("ape")
    with torch.no_grad():
        model.source.tokens.weight.zero_()
    [[embeddings, *_]] = compute(model, [[5, 6, 7]], (0, 30))
    expected = sum(math.cos(30 / 10_000 ** (m / 8)) for m in range(8)) / 8
    assert embeddings.tolist() == [pytest.approx((1, expected)), pytest.approx((expected, 1))]


FIRST, SECOND, THIRD = [5, 6, 7, 8], [9, 10, 11, 12, 13], [14, 15, 16, 17]
SEQUENCE = [*FIRST, SEP, *SECOND, SEP, *THIRD]
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


PAIRS = [(SEQUENCE, SEQUENCE), ([*SECOND, SEP, *FIRST], [*SECOND, SEP, *FIRST])]


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


def test_a_sample_is_drawn_without_repeats_and_always_the_same(make_store):
    store = make_store([([5 + n, SEP, 6], [7, SEP, 5 + n]) for n in range(18)])
    drawn = sample(store, 9)
    firsts = [source[0] for source, _ in drawn]
    assert len(set(firsts)) == 9
    assert firsts == sorted(firsts)
    assert all(source[0] == target[-1] for source, target in drawn)
    assert sample(store, 9) == drawn != sample(store, 18)[:9]
    assert len(sample(store, 100)) == 18


def test_a_last_pair_that_joining_left_alone_is_left_out(make_store):
    good = ([5, SEP, 6], [7, SEP, 8])
    assert sample(make_store([good, good, ([9], [9])]), 9) == [good, good]
