"""The token store: what goes in comes out, halves are never seen."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shapeshift.data.store import write_store


def write(directory, pairs, source_size=1 << 16, target_size=1 << 16):
    return write_store(directory, pairs, source_size=source_size, target_size=target_size)


def as_lists(store):
    return [(source.tolist(), target.tolist()) for source, target in store]


@settings(max_examples=30, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.lists(st.integers(0, 70_000), max_size=5), st.lists(st.integers(0, 999), max_size=5)
        ),
        max_size=8,
    )
)
def test_any_pairs_come_back(tmp_path_factory, pairs):
    directory = tmp_path_factory.mktemp("store") / "any"
    opened = write(directory, pairs, 70_001, 1_000)
    assert as_lists(opened) == pairs
    assert opened.source_lengths.tolist() == [len(source) for source, _ in pairs]
    assert opened.target_lengths.tolist() == [len(target) for _, target in pairs]


@pytest.mark.parametrize(("size", "width"), [(1 << 16, 2), ((1 << 16) + 1, 4)])
def test_an_id_takes_as_many_bytes_as_the_vocabulary_needs(tmp_path, size, width):
    opened = write(tmp_path / "store", [([size - 1], [3])], source_size=size, target_size=10)
    assert (tmp_path / "store" / "source.tokens").stat().st_size == width
    assert opened[0][0].tolist() == [size - 1]
    assert (opened.source_size, opened.target_size) == (size, 10)
