"""Forced scoring on models whose probabilities are known, and against search."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from shapeshift.data.batching import make_batch
from shapeshift.decoding.scoring import score_references


class Bigram(nn.Module):
    """Logits from the last token plus a shift from the source; drops out while it trains."""

    def __init__(self, vocabulary: int = 9, seed: int = 0):
        super().__init__()
        self.table = nn.Embedding(vocabulary, vocabulary)
        nn.init.normal_(self.table.weight, generator=torch.Generator().manual_seed(seed))
        self.dropout = nn.Dropout(0.5)

    def encode(self, source: Tensor) -> Tensor:
        return self.table(source[:, 0])

    def decode(self, target_input: Tensor, memory: Tensor) -> Tensor:
        return self.dropout(self.table(target_input) + memory[:, None])

    def project(self, hidden: Tensor) -> Tensor:
        return 2 * hidden


def test_pieces_of_a_large_batch_are_put_together_in_order() -> None:
    model = Bigram(seed=1)
    generator = torch.Generator().manual_seed(2)
    rows = torch.randint(4, 9, (50, 60), generator=generator).tolist()
    targets = [row[: 20 + i % 41] for i, row in enumerate(rows)]
    sources = [[4 + i % 5] for i in range(50)]
    together = score_references(model, make_batch(sources, targets))
    assert (together != 0).sum() == sum(len(target) + 1 for target in targets) > 1024
    alone = [
        score_references(model, make_batch([s], [t])).sum(dim=1)
        for s, t in zip(sources, targets, strict=True)
    ]
    torch.testing.assert_close(together.sum(dim=1), torch.cat(alone))


def test_half_precision_is_normalised_in_single() -> None:
    model = Bigram(vocabulary=2000).bfloat16()
    batch = make_batch([[4]], [[5, 6, 7]])
    scores = score_references(model, batch)
    hidden = model.eval().decode(batch.target_input, model.encode(batch.source))
    logits = model.project(hidden).double()[0]
    expected = logits.log_softmax(-1).gather(1, batch.target_output.T).squeeze(1)
    assert scores.dtype == torch.float32
    torch.testing.assert_close(scores[0].double(), expected, rtol=1e-5, atol=1e-5)
