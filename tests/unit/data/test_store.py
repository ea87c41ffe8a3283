"""The token store."""

import pytest

from shapeshift.data.store import write_store


@pytest.mark.parametrize(("size", "width"), [(1 << 16, 2), ((1 << 16) + 1, 4)])
def test_an_id_takes_as_many_bytes_as_the_vocabulary_needs(tmp_path, size, width):
    pairs = [([size - 1], [3]), ([], [1, 2])]
    opened = write_store(tmp_path / "store", pairs, source_size=size, target_size=10)
    assert (tmp_path / "store" / "source.tokens").stat().st_size == width
    assert [(source.tolist(), target.tolist()) for source, target in opened] == pairs
    assert (opened.source_lengths.tolist(), opened.target_lengths.tolist()) == ([1, 0], [1, 2])
    assert (opened.source_size, opened.target_size) == (size, 10)
