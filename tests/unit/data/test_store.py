"""The token store."""

import pytest

from shapeshift.data import store
from shapeshift.data.store import write_store


@pytest.mark.parametrize(("size", "width"), [(1 << 16, 2), ((1 << 16) + 1, 4)])
def test_an_id_takes_as_many_bytes_as_the_vocabulary_needs(tmp_path, size, width):
    pairs = [([size - 1], [3]), ([], [1, 2])]
    opened = write_store(tmp_path / "store", pairs, source_size=size, target_size=10)
    assert (tmp_path / "store" / "source.tokens").stat().st_size == width
    assert [(source.tolist(), target.tolist()) for source, target in opened] == pairs
    assert (opened.source_lengths.tolist(), opened.target_lengths.tolist()) == ([1, 0], [1, 2])
    assert (opened.source_size, opened.target_size) == (size, 10)


@pytest.mark.parametrize("num_pairs", [0, 2, 3, 7])
def test_pairs_are_written_in_blocks(tmp_path, monkeypatch, num_pairs):
    monkeypatch.setattr(store, "_BLOCK", 3)
    pairs = [(list(range(n)), [9] * (n % 3)) for n in range(num_pairs)]
    opened = write_store(tmp_path / "store", iter(pairs), source_size=10, target_size=10)
    assert [(source.tolist(), target.tolist()) for source, target in opened] == pairs


@pytest.mark.parametrize("wrong", [-1, 10])
def test_ids_that_are_in_no_vocabulary_are_refused(tmp_path, wrong):
    with pytest.raises(ValueError, match=f"ids .*{wrong}.*, vocabulary of 10"):
        write_store(tmp_path / "store", [([1], [2, wrong])], source_size=10, target_size=10)
    assert not (tmp_path / "store" / store.HEADER).exists()
