"""Batches: every pair once, never over the limit, the same plan from the same arguments."""

from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from shapeshift._system.errors import ShapeshiftError
from shapeshift.data.batching import collate, make_batch, plan_epoch, plan_in_order
from shapeshift.data.config import BatchConfig
from shapeshift.data.store import write_store

lengths = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)), max_size=60)
configs = st.builds(
    BatchConfig,
    max_tokens=st.integers(31, 200),
    max_sentences=st.none() | st.integers(1, 9),
    sort_window=st.none() | st.integers(1, 40),
)


def sides(pairs):
    table = np.array(pairs, dtype=np.int32).reshape(-1, 2)
    return table[:, 0], table[:, 1]


def padded_tokens(batch, source, target):
    return len(batch) * max(max(source[i], target[i]) + 1 for i in batch)


@settings(deadline=None)
@given(lengths, configs)
def test_every_pair_stands_in_one_batch_and_no_batch_breaks_a_limit(pairs, config):
    source, target = sides(pairs)
    given = (source, target, config)
    for plan in (plan_epoch(*given, seed=3, epoch=1), plan_in_order(*given)):
        assert sorted(i for batch in plan for i in batch.tolist()) == list(range(len(pairs)))
        for batch in plan:
            assert 0 < len(batch) <= (config.max_sentences or len(pairs))
            assert padded_tokens(batch, source, target) <= config.max_tokens


@settings(deadline=None)
@given(lengths, st.integers(31, 200))
def test_no_batch_could_take_the_next_pair_as_well(pairs, max_tokens):
    source, target = sides(pairs)
    plan = plan_in_order(source, target, BatchConfig(max_tokens=max_tokens))
    for batch, following in pairwise(plan):
        assert padded_tokens([*batch, following[0]], source, target) > max_tokens


def test_a_plan_is_a_function_of_its_seed_and_epoch():
    source = target = np.full(400, 7, np.int32)
    config = BatchConfig(max_tokens=80)

    def plan(seed, epoch):
        return tuple(np.concatenate(plan_epoch(source, target, config, seed=seed, epoch=epoch)))

    settings = [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert len({plan(*each) for each in settings}) == 4
    assert plan(2**40, 3) == plan(2**40, 3)


def test_batches_are_mixed_but_pairs_in_them_alike():
    rng = np.random.default_rng(0)
    source = rng.integers(1, 100, 5_000)
    plan = plan_epoch(source, source, BatchConfig(max_tokens=1_000), seed=0, epoch=0)
    widths = [source[batch].max() - source[batch].min() for batch in plan]
    firsts = np.array([source[batch[0]] for batch in plan])
    assert np.mean(widths) < 3
    assert np.mean(np.diff(firsts) < 0) > 0.3


def test_the_plan_in_order_goes_from_short_to_long_and_keeps_ties():
    source, target = sides([(9, 1), (2, 2), (5, 1), (2, 2), (1, 5)])
    plan = plan_in_order(source, target, BatchConfig(max_tokens=12, sort_window=1))
    assert [batch.tolist() for batch in plan] == [[1, 3], [2, 4], [0]]


def test_a_pair_that_fits_no_batch_is_named():
    source, target = sides([(3, 3), (4, 40), (31, 2)])
    for run in (
        lambda: plan_in_order(source, target, BatchConfig(max_tokens=40)),
        lambda: plan_epoch(source, target, BatchConfig(max_tokens=40), seed=0, epoch=0),
    ):
        with pytest.raises(ShapeshiftError, match=r"pair 1 .* has 41 tokens .* max_tokens=40"):
            run()
    assert plan_in_order(source, target, BatchConfig(max_tokens=41))


def one_row_at_a_time(rows, start, end):
    width = max(map(len, rows)) + 1
    return [[*start, *row, *end] + [0] * (width - 1 - len(row)) for row in rows]


rows = st.lists(st.integers(5, 98), max_size=6)


@settings(deadline=None, max_examples=50)
@given(st.lists(st.tuples(rows, rows), min_size=1, max_size=7), st.data())
def test_batches_hold_what_rows_padded_one_at_a_time_hold(tmp_path_factory, pairs, data):
    folder = tmp_path_factory.mktemp("data") / "store"
    store = write_store(folder, pairs, source_size=99, target_size=99)
    chosen = data.draw(st.lists(st.integers(0, len(pairs) - 1), min_size=1, max_size=7))
    sources, targets = zip(*(pairs[i] for i in chosen), strict=True)
    for batch in (collate(store, chosen), make_batch(sources, targets)):
        assert batch.source.tolist() == one_row_at_a_time(sources, [], [3])
        assert batch.target_input.tolist() == one_row_at_a_time(targets, [2], [])
        assert batch.target_output.tolist() == one_row_at_a_time(targets, [], [3])
        assert len(batch) == len(chosen)
        assert {batch.source.dtype, batch.target_input.dtype} == {torch.int64}
        assert batch.num_source_tokens == int((batch.source != 0).sum())
        assert batch.num_target_tokens == int((batch.target_output != 0).sum())
