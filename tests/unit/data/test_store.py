"""The token store: what goes in comes out, damage is noticed, halves are never seen."""

import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shapeshift.data.store import TokenStore, TokenStoreWriter
from shapeshift.errors import ShapeshiftError

PAIRS = [([5, 6, 7], [8]), ([], [9, 9]), ([65_535, 0], []), ([1], [2, 3, 4])]


def write(directory, pairs, source_size=1 << 16, target_size=1 << 16):
    with TokenStoreWriter(directory, source_size=source_size, target_size=target_size) as writer:
        for source, target in pairs:
            writer.add(source, target)
    return TokenStore.open(directory)


@pytest.fixture
def store(tmp_path):
    return write(tmp_path / "store", PAIRS)


def as_lists(store):
    return [(source.tolist(), target.tolist()) for source, target in store]


def test_pairs_come_back_as_they_went_in(store):
    assert len(store) == 4
    assert as_lists(store) == PAIRS
    assert store.source_lengths.tolist() == [3, 0, 2, 1]
    assert store.target_lengths.tolist() == [1, 2, 0, 3]
    store.verify()


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
    assert as_lists(write(directory, pairs, 70_001, 1_000)) == pairs


@pytest.mark.parametrize(("size", "width"), [(1 << 16, 2), ((1 << 16) + 1, 4)])
def test_an_id_takes_as_many_bytes_as_the_vocabulary_needs(tmp_path, size, width):
    opened = write(tmp_path / "store", [([size - 1], [3])], source_size=size, target_size=10)
    assert (tmp_path / "store" / "source.tokens").stat().st_size == width
    assert opened[0][0].tolist() == [size - 1]
    assert (opened.source_size, opened.target_size) == (size, 10)


@pytest.mark.parametrize("ids", [[10], [-1], [3, 70_000]])
def test_an_id_outside_the_vocabulary_is_not_written(tmp_path, ids):
    with pytest.raises(ValueError, match="vocabulary of 10"):
        write(tmp_path / "store", [(ids, [1])], source_size=10, target_size=10)
    assert list(tmp_path.iterdir()) == []


def test_indices_outside_are_refused(store):
    for index in (4, -1):
        with pytest.raises(IndexError):
            store[index]


def test_tokens_cannot_be_written_through_a_store(store):
    with pytest.raises(ValueError, match="read-only"):
        store[0][0][0] = 1


def test_an_empty_store_is_a_store(tmp_path):
    opened = write(tmp_path / "store", [])
    assert len(opened) == 0
    assert opened.source_lengths.shape == (0,)


def test_a_store_travels_to_a_worker_by_its_path(tmp_path):
    opened = write(tmp_path / "store", [([7] * 100_000, [8])])
    sent = pickle.dumps(opened)
    assert len(sent) < 1_000
    assert as_lists(pickle.loads(sent)) == as_lists(opened)


def test_an_exception_leaves_nothing_behind(tmp_path):
    def pairs():
        yield [1], [2]
        assert not (tmp_path / "store").exists()
        raise RuntimeError("no more")

    with pytest.raises(RuntimeError, match="no more"):
        write(tmp_path / "store", pairs())
    assert list(tmp_path.iterdir()) == []


def test_what_an_interrupted_writer_left_does_no_harm(tmp_path):
    abandoned = TokenStoreWriter(tmp_path / "store", source_size=9, target_size=9)
    abandoned.__enter__().add([1, 2, 3], [4])
    assert as_lists(write(tmp_path / "store", [([5], [6])])) == [([5], [6])]


def test_an_existing_store_is_not_overwritten(store):
    with pytest.raises(ShapeshiftError, match="already exists"):
        TokenStoreWriter(store.directory, source_size=9, target_size=9)


@pytest.mark.parametrize(
    "name", ["source.tokens", "source.offsets", "target.tokens", "target.offsets"]
)
@pytest.mark.parametrize("damage", ["shorter", "longer", "missing"])
def test_files_of_the_wrong_size_are_refused(store, name, damage):
    path = store.directory / name
    data = path.read_bytes()
    if damage == "missing":
        path.unlink()
    else:
        path.write_bytes(data[:-1] if damage == "shorter" else data + b"\0\0")
    with pytest.raises(ShapeshiftError, match=f"expected {len(data)} bytes") as caught:
        TokenStore.open(store.directory)
    assert caught.value.path == path


@pytest.mark.parametrize(
    "header", [b"", b"{", b"{}", b'{"format": "shapeshift-tokens", "version": 2}']
)
def test_a_strange_header_is_refused(store, header):
    (store.directory / "store.json").write_bytes(header)
    with pytest.raises(ShapeshiftError, match="not a header of version 1"):
        TokenStore.open(store.directory)


def test_a_directory_without_header_is_no_store(tmp_path):
    with pytest.raises(ShapeshiftError, match=r"holds no store\.json"):
        TokenStore.open(tmp_path)


def test_offsets_that_disagree_are_refused(store):
    path = store.directory / "source.offsets"
    np.array([0, 3, 2, 5, 6], "<i8").tofile(path)
    with pytest.raises(ShapeshiftError, match="go backwards"):
        _ = TokenStore.open(store.directory).source_lengths
    np.array([0, 3, 3, 5, 7], "<i8").tofile(path)
    with pytest.raises(ShapeshiftError, match="from 0 to 7; expected 0 to 6"):
        TokenStore.open(store.directory)


def test_verify_notices_a_single_changed_byte(store):
    path = store.directory / "target.tokens"
    data = bytearray(path.read_bytes())
    data[3] ^= 1
    path.write_bytes(data)
    with pytest.raises(ShapeshiftError, match="has changed") as caught:
        TokenStore.open(store.directory).verify()
    assert caught.value.path == path
