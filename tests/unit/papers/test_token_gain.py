import numpy as np
import pytest
import torch

from shapeshift.data.batching import make_batch
from shapeshift.data.config import BatchConfig
from shapeshift.data.subwords import EOS, SEP
from shapeshift.papers.analyses.token_gain import TokenGain, compute, in_order, plot, token_counts

VOCAB = 10
FREQUENCIES = np.array([0, 0, 0, 900, 0, 800, 7, 60, 60, 0])
BATCH = make_batch([[5], [6]], [[5, 6, 7], [7, 6]])


class Rigged:
    """Gives every token the same probability, but for those that it likes at some positions.

    Args:
        likes: (position, token) pairs.
    """

    def __init__(self, *likes):
        self.likes = likes

    def encode(self, source):
        return None

    def decode(self, target_input, memory):
        logits = torch.zeros(*target_input.shape, VOCAB)
        for position, token in self.likes:
            logits[:, position, token] = 2.0
        return logits

    def project(self, hidden):
        return hidden


def gain(*likes):
    return compute(Rigged(), Rigged(*likes), [BATCH], FREQUENCIES, (1, 2), (10, 100))


def test_tokens_fall_into_cells_by_position_and_frequency_and_ties_count_one_half():
    # 5 6 7 </s> and 7 6 </s>; occurrences 800, 7, 60, 900. Rows: <10, 10–99, ≥100.
    tied = gain()
    assert tied.total == [
        [0, 2, 0],  # 6, twice at position 1
        [1, 0, 1],  # 7 at positions 0 and 2
        [1, 0, 2],  # 5 at 0, </s> at 2 and 3
    ]
    assert np.unique(tied.shares()[~np.isnan(tied.shares())]).tolist() == [50]
    liked = gain((0, 5), (2, EOS))
    # Position 0: 5 higher, 7 lower. Position 2: </s> higher, 7 lower. Position 3: </s> ties.
    assert liked.higher == [[0, 1, 0], [0, 0, 0], [1, 0, 1.5]]
    assert liked.shares()[2].tolist() == [100, pytest.approx(np.nan, nan_ok=True), 75]


def test_exchanged_models_add_up_to_all_in_batches_of_any_size(make_model, make_store):
    store = make_store([([5, 6], [7, 8, 9]), ([10], [11]), ([12, 13, 14], [15, 16])])
    models, frequencies = (make_model("ape"), make_model("nope")), token_counts(store)
    wide, narrow, other = (
        compute(*pair, in_order(store, batch=BatchConfig(max_tokens=size)), frequencies, (10,))
        for pair, size in ((models, 100), (models, 4), (models[::-1], 100))
    )
    assert wide == narrow
    assert np.sum(wide.total) == 6 + 3
    assert other.total == wide.total
    np.testing.assert_array_equal(np.array(wide.higher) + np.array(other.higher), wide.total)
    assert 0 < np.sum(wide.higher) < np.sum(wide.total)


def test_occurrences_are_counted_with_the_end_of_each_sentence(make_store):
    counts = token_counts(make_store([([5], [7, 7, SEP, 8]), ([5], []), ([5, 5], [8])]))
    assert {n: x for n, x in enumerate(counts.tolist()) if x} == {EOS: 3, SEP: 1, 7: 2, 8: 2}


def test_shares_of_some_tokens():
    none = (0, 0)
    gain = TokenGain(
        edges=(10,),
        higher=((60, 20), none, none, (20, 0), none, none, none),
        total=((100, 40), none, none, (50, 10), none, none, none),
    )
    assert gain.share() == pytest.approx(50.0)
    assert gain.share(begin=10) == pytest.approx(40.0)
    assert gain.share(rare=True) == pytest.approx(100 * 80 / 140)
    assert gain.share(rare=False) == pytest.approx(100 * 20 / 60)
    assert gain.share(begin=10, rare=False) is None  # ten tokens are too few
    assert gain.share(begin=11) is None


ROWS = ((0, 0, 0), (60, 80, 4), (50, 50, 50), *[(0, 0, 0)] * 4)
TOTAL = ((0, 0, 0), (100, 100, 4), (100, 100, 100), *[(0, 0, 0)] * 4)
DATA = TokenGain(edges=(10, 20), higher=ROWS, total=TOTAL)


def test_the_map_leaves_out_empty_rows_and_is_white_at_one_half():
    [axes, _] = plot(DATA).axes
    [image] = axes.images
    assert image.get_array().tolist() == [[60, 80, None], [50, 50, 50]]  # of four tokens: blank
    assert image.get_clim() == (20, 80)
    assert [label.get_text() for label in axes.get_yticklabels()] == ["10–99", "100–999"]
    assert [label.get_text() for label in axes.get_xticklabels()] == ["0–9", "10–19", "≥ 20"]
    assert [text.get_text() for text in axes.texts] == ["60", "80", "50", "50", "50"]
    assert "fewer than 30 tokens" in axes.get_xlabel()
