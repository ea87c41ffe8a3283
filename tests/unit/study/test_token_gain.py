import numpy as np
import torch

from shapeshift.data.batching import make_batch
from shapeshift.data.subwords import EOS, SEP
from shapeshift.study.analyses.token_gain import compute, plot, share, token_counts

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
    return compute(Rigged(), Rigged(*likes), [BATCH], FREQUENCIES, (1, 2))[:, :3]


def test_tokens_fall_into_fields_by_position_and_frequency_and_ties_count_one_half():
    # 5 6 7 </s> and 7 6 </s>; occurrences 800, 7, 60, 900. Rows: <10, 10–99, 100–999.
    higher, total = gain()
    assert total.tolist() == [
        [0, 2, 0],  # 6, twice at position 1
        [1, 0, 1],  # 7 at positions 0 and 2
        [1, 0, 2],  # 5 at 0, </s> at 2 and 3
    ]
    np.testing.assert_array_equal(higher, total / 2)
    # Position 0: 5 higher, 7 lower. Position 2: </s> higher, 7 lower. Position 3: </s> ties.
    assert gain((0, 5), (2, EOS))[0].tolist() == [[0, 1, 0], [0, 0, 0], [1, 0, 1.5]]


def test_occurrences_are_counted_with_the_end_of_each_sentence(make_store):
    counts = token_counts(make_store([([5], [7, 7, SEP, 8]), ([5], []), ([5, 5], [8])]))
    assert {n: x for n, x in enumerate(counts.tolist()) if x} == {EOS: 3, SEP: 1, 7: 2, 8: 2}


def test_the_map_leaves_out_empty_rows_and_shares_of_few_tokens():
    counts = np.zeros((2, 7, 3))
    counts[:, 1] = (60, 80, 4), (100, 100, 4)
    counts[:, 2] = (50, 50, 50), (100, 100, 100)
    np.testing.assert_array_equal(share(counts)[1], [60, 80, np.nan])  # four are too few
    [axes, _] = plot(counts, (10, 20), 20).axes
    [image] = axes.images
    assert image.get_array().tolist() == [[60, 80, None], [50, 50, 50]]
    assert image.get_clim() == (20, 80)  # white at one half
    assert [label.get_text() for label in axes.get_yticklabels()] == ["10–99", "100–999"]
    assert [label.get_text() for label in axes.get_xticklabels()] == ["0–9", "10–19", "≥ 20"]
    shown = ["60", "80", "50", "50", "50", " unseen in training →"]
    assert [text.get_text() for text in axes.texts] == shown
    assert [*axes.lines[0].get_xdata()] == [1.5, 1.5]
