"""Search against references that are written as slow loops over Python lists, in float64."""

import math
from collections.abc import Callable
from functools import cache

import numpy as np
import pytest
import torch

from shapeshift import kernels
from shapeshift._system.errors import ShapeshiftError
from shapeshift.decoding.config import AveragePenalty, GnmtPenalty, NoPenalty
from shapeshift.decoding.search import Hypothesis, beam_search

PAD, UNK, BOS, EOS = 0, 1, 2, 3
PENALTIES = [NoPenalty(), GnmtPenalty(alpha=0.6), GnmtPenalty(alpha=1.5), AveragePenalty()]
Table = Callable[[int, tuple[int, ...]], np.ndarray]
"""(sentence, tokens so far) -> logits of the next token."""


@pytest.fixture(params=["compiled", "PyTorch"], scope="module", autouse=True)
def steps(request):
    """Search with compiled steps and without."""
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "PyTorch":
            patch.setattr(kernels, "serves", lambda _: False)
        elif not kernels.is_available(torch.float32):
            pytest.skip("no C compiler")
        yield


def random_table(vocabulary: int, seed: int, *, eos_bias: float = 0.0) -> Table:
    """Logits that depend on the sentence and on the whole prefix."""

    @cache
    def logits(sentence, prefix):
        values = 1.5 * np.random.default_rng([seed, sentence, *prefix]).normal(size=vocabulary)
        values[EOS] += eos_bias
        return values.astype(np.float32)

    return logits


class TableStepper:
    """A decoder whose state is the prefix of every row."""

    def __init__(self, table: Table, sentences: list[int], beam: int):
        self.table, self.beam = table, beam
        self.rows = [(sentence, ()) for sentence in sentences for _ in range(beam)]
        self.num_rows_stepped: list[int] = []
        self.num_beams_moved = 0

    def step(self, tokens):
        assert tokens.shape == (len(self.rows),)
        if self.num_rows_stepped:
            tails = [(token,) for token in tokens.tolist()]
        else:
            assert set(tokens.tolist()) == {BOS}
            tails = [()] * len(self.rows)
        pairs = zip(self.rows, tails, strict=True)
        self.rows = [(sentence, prefix + tail) for (sentence, prefix), tail in pairs]
        self.num_rows_stepped.append(len(self.rows))
        return torch.from_numpy(np.stack([self.table(*row) for row in self.rows]))

    def reorder(self, rows):
        groups = (rows.view(-1, self.beam) // self.beam).tolist()
        assert all(len(set(group)) == 1 for group in groups), "a beam left its sentence"
        sentences = [group[0] for group in groups]
        assert sentences == sorted(set(sentences)), "sentences changed places"
        new = [self.rows[row] for row in rows.tolist()]
        self.num_beams_moved += sum(a is not b for a, b in zip(new, self.rows, strict=False))
        self.rows = new


class BeginningOnce(TableStepper):
    """Which computes the first step once for all beams."""

    def begin(self, tokens):
        self.rows, all_rows = self.rows[:: self.beam], self.rows
        logits = self.step(tokens)
        self.rows = all_rows
        return logits


def log_softmax(logits: np.ndarray) -> np.ndarray:
    values = logits.astype(np.float64)
    return values - np.log(np.exp(values).sum())


def forced(table: Table, sentence: int, tokens: tuple[int, ...]) -> float:
    """log p of `tokens` and `</s>`, the softmax over everything."""
    ids = (*tokens, EOS)
    return sum(float(log_softmax(table(sentence, ids[:t]))[ids[t]]) for t in range(len(ids)))


Scored = list[tuple[float, tuple[int, ...]]]


def slow_beam(
    table: Table, sentence: int, limit: int, beam: int, n_best: int, penalty: Callable[[int], float]
) -> Scored:
    """Beam search of one sentence that always runs to the limit."""
    live: Scored = [(0.0, ())]
    finished: Scored = []
    for length in range(1, limit + 1):
        candidates = []
        for total, prefix in live:
            for token, log_prob in enumerate(log_softmax(table(sentence, prefix))):
                if token not in (PAD, BOS) and (token == EOS or length < limit):
                    candidates.append((total + float(log_prob), (*prefix, token)))
        candidates.sort(reverse=True)
        for total, tokens in candidates[:beam]:
            if tokens[-1] == EOS:
                finished.append((total / penalty(length), tokens[:-1]))
        live = [c for c in candidates[: 2 * beam] if c[1][-1] != EOS][:beam]
    return sorted(finished, reverse=True)[:n_best]


def assert_same(found: list[Hypothesis], expected: Scored) -> None:
    assert [tuple(h.tokens) for h in found] == [tokens for _, tokens in expected]
    assert [h.score for h in found] == pytest.approx([score for score, _ in expected], rel=1e-5)


@pytest.mark.parametrize("penalty", PENALTIES, ids=str)
@pytest.mark.parametrize(("beam", "n_best"), [(2, 1), (2, 2), (4, 3), (7, 1)])
@pytest.mark.parametrize("kind", [TableStepper, BeginningOnce])
def test_a_batch_that_stops_early_gives_what_each_sentence_gives_to_its_limit(
    penalty, kind, beam, n_best
):
    limits = [9, 1, 5, 12, 12]
    steps_saved = 0
    for seed in range(2):
        table = random_table(9, seed, eos_bias=1.0)
        stepper = kind(table, list(range(5)), beam)
        found = beam_search(
            stepper, torch.tensor(limits), beam=beam, n_best=n_best, penalty=penalty
        )
        for sentence, limit in enumerate(limits):
            expected = slow_beam(table, sentence, limit, beam, n_best, penalty)
            assert_same(found[sentence], expected)
        rows = stepper.num_rows_stepped
        if kind is BeginningOnce:
            assert rows[0] == 5
            rows[0] *= beam
        assert rows == sorted(rows, reverse=True)
        assert rows[-1] < rows[0] == 5 * beam, "finished sentences stayed in the batch"
        steps_saved += beam * sum(limits) - sum(rows)
        assert stepper.num_beams_moved > 0
    assert steps_saved > 0


@pytest.mark.parametrize("penalty", PENALTIES, ids=str)
def test_a_beam_of_one_follows_the_maximum(penalty):
    table = random_table(12, seed=6, eos_bias=1.0)
    limits = [2, 30, 9, 1, 30]
    stepper = TableStepper(table, list(range(5)), 1)
    found = beam_search(stepper, torch.tensor(limits), beam=1, penalty=penalty)
    for sentence, limit in enumerate(limits):
        # Without a penalty, what ends first is the best of all.
        [(log_prob, tokens)] = slow_beam(table, sentence, limit, 1, 1, NoPenalty())
        assert_same(found[sentence], [(log_prob / penalty(len(tokens) + 1), tokens)])
    assert stepper.num_rows_stepped[-1] < 5


@pytest.mark.parametrize("penalty", PENALTIES[:2], ids=str)
@pytest.mark.parametrize(("beam", "n_best"), [(1, 1), (2, 2), (4, 1)])
def test_rare_checks_change_nothing(penalty, beam, n_best):
    """Between checks, stopped sentences stay in the batch, as on a GPU."""
    limits = torch.tensor([9, 1, 5, 12, 30])
    for seed in range(2):
        table = random_table(9, seed, eos_bias=1.0)
        found, rows = [], []
        for checks in ({}, {"check_every": 3}, {"check_every": 100}, {"fixed_rows": True}):
            stepper = TableStepper(table, list(range(5)), beam)
            settings = {"beam": beam, "n_best": n_best, "penalty": penalty}
            found.append(beam_search(stepper, limits, **checks, **settings))
            rows.append(stepper.num_rows_stepped)
        assert found == [found[0]] * 4
        assert sum(rows[0]) < sum(rows[1]) < sum(rows[2]) == 30 * 5 * beam
        assert rows[3] == [5 * beam] * len(rows[0])


def test_padding_and_start_are_never_generated_and_keep_their_share():
    logits = np.array([5.0, -9.0, 5.0, 1.0, 0.0, -9.0], np.float32)

    def table(sentence, prefix):
        return logits

    for beam in (1, 2):
        [[best]] = beam_search(TableStepper(table, [0], beam), torch.tensor([5]), beam=beam)
        assert best.tokens == []
        expected = 1.0 - math.log(2 * math.exp(5) + 2 * math.exp(-9) + math.exp(1) + 1)
        assert best.log_prob == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("vocabulary", [9, 64 * 40 + 5])
def test_equal_scores_go_by_beam_and_then_by_token(vocabulary):
    def table(sentence, prefix):
        logits = np.zeros(vocabulary, np.float32)
        logits[:4] = 0, -90, 0, 9 if prefix else -9
        logits[vocabulary - 1 :] = 0.5 * (not prefix)  # right of the last whole block
        return logits

    found = beam_search(TableStepper(table, [0], 3), torch.tensor([2]), beam=3, n_best=3)
    assert [h.tokens for h in found[0]] == [[vocabulary - 1], [4], [5]]
    assert len({h.score for h in found[0]}) == 2


@pytest.mark.parametrize("beam", [1, 4])
def test_half_precision_logits_are_normalised_in_single(beam):
    table = random_table(500, seed=8)

    class Half(TableStepper):
        def step(self, tokens):
            return super().step(tokens).bfloat16()

    def rounded(sentence, prefix):
        return torch.from_numpy(table(sentence, prefix)).bfloat16().float().numpy()

    [[best]] = beam_search(Half(table, [0], beam), torch.tensor([6]), beam=beam)
    assert best.log_prob == pytest.approx(forced(rounded, 0, tuple(best.tokens)), rel=1e-5)


@pytest.mark.parametrize("beam", [1, 2])
@pytest.mark.parametrize("value", [math.nan, -math.inf])
def test_a_broken_model_is_reported(beam, value):
    def table(sentence, prefix):
        return np.full(8, value if sentence else 0.0, np.float32)

    with pytest.raises(ShapeshiftError, match="NaN"):
        beam_search(TableStepper(table, [0, 1], beam), torch.tensor([5, 5]), beam=beam)
