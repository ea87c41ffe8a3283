"""From lines of text to lines of translation, in batches, in order, as the input comes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Protocol

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from shapeshift.data.subwords import EOS, PAD, split_parts
from shapeshift.decoding.config import DecodingConfig
from shapeshift.decoding.scoring import evaluating
from shapeshift.decoding.search import Hypothesis, Stepper, beam_search


class SearchModel(Protocol):
    """The part of the translation model that search calls; also an `nn.Module`."""

    def start(self, source: Tensor, beam: int) -> Stepper:
        """Encode source ids `(B, S)` (with `</s>`, padded on the right) for `beam` rows each."""
        ...


class Encoder(Protocol):
    """The part of `shapeshift.data.subwords.Subwords` that translation calls."""

    def encode_source(self, texts: Sequence[str], /) -> list[list[int]]:
        """Return the ids of each text, without special ones."""
        ...

    def encode_source_parts(self, texts: Sequence[Sequence[str]], /) -> list[list[int]]:
        """Return the ids of each joined text, given as its parts."""
        ...

    def decode_target(self, ids: list[int], /) -> str:
        """Return the text of target ids."""
        ...


@dataclass(frozen=True, slots=True)
class Translation:
    """One translation of a line: its text, never with a newline, log p(y | x), and that divided by
    the length penalty. A blank line has one, empty, with both 0."""

    text: str
    log_prob: float
    score: float


class Translator:
    """A model, its subwords and the way to search, ready for text.

    The model may be in training mode between calls: it is put into evaluation mode for each batch
    and back.

    Args:
        model: a translation model, already on `device`.
        subwords: the subword models that it was trained with.
        config: beam, penalty, limits and batch size.
        device: where the model is.
        joined: each line is parts joined by ` <sep> `, as in the Interpolate datasets.
        autocast: run the model under autocast to this type, such as `torch.bfloat16`; None runs it
            in the type of its weights. Log-probabilities are float32 always.
    """

    def __init__(
        self,
        model: SearchModel,
        subwords: Encoder,
        config: DecodingConfig,
        device: torch.device | str = "cpu",
        *,
        joined: bool = False,
        autocast: torch.dtype | None = None,
    ):
        self.model = model
        self.subwords = subwords
        self.config = config
        self.device = torch.device(device)
        self.joined = joined
        self.autocast = autocast

    def translate(self, lines: Iterable[str], *, stream: bool = False) -> Iterator[str]:
        """Yield the best translation of every line: one line out for each line in, in order.

        Args:
            lines: source text; a newline at the end is dropped, a blank line stays blank.
            stream: answer each line before the next is read (a person or a pipe is waiting),
                instead of `config.window` lines at a time.

        Raises:
            ShapeshiftError: the model gives NaN.
        """
        for best in self.translate_n_best(lines, 1, stream=stream):
            yield best[0].text

    def translate_n_best(
        self, lines: Iterable[str], n_best: int, *, stream: bool = False
    ) -> Iterator[list[Translation]]:
        """Yield the `n_best` best translations of every line, best score first.

        There are fewer where fewer were found. Different ids may decode to the same text.

        Raises:
            ShapeshiftError: `n_best` exceeds the beam; the model gives NaN.
        """
        lines = iter(lines)
        while window := list(islice(lines, 1 if stream else self.config.window)):
            for hypotheses in self.search(self._encode(window), n_best):
                yield [self._translation(hypothesis) for hypothesis in hypotheses]

    def search(self, sources: Sequence[Sequence[int]], n_best: int = 1) -> list[list[Hypothesis]]:
        """Return the best hypotheses of every source, in order.

        Args:
            sources: subword ids without `</s>`, for example from a token store. An empty one has
                one hypothesis, empty, with score 0.
            n_best: hypotheses of each source, at most the beam.

        Raises:
            ShapeshiftError: `n_best` exceeds the beam; the model gives NaN.
        """
        results = [[Hypothesis([], log_prob=0.0, score=0.0)] for _ in sources]
        for batch in self._batches([len(source) for source in sources]):
            found = self._search_batch([sources[number] for number in batch], n_best)
            for number, hypotheses in zip(batch, found, strict=True):
                results[number] = hypotheses
        return results

    def _encode(self, lines: list[str]) -> list[list[int]]:
        """Return the ids of each line, none where it is blank."""
        # A blank line may still have ids, depending on how the subword model normalises.
        texts = ["" if line.isspace() else line.removesuffix("\n") for line in lines]
        if self.joined:
            return self.subwords.encode_source_parts([split_parts(text) for text in texts])
        return self.subwords.encode_source(texts)

    def _batches(self, lengths: Sequence[int]) -> Iterator[list[int]]:
        """Yield the numbers of the sources that are not empty in batches of like length, the
        longest first, so that what does not fit into memory fails at once."""
        numbers = sorted(
            (n for n, length in enumerate(lengths) if length), key=lambda n: -lengths[n]
        )
        while numbers:
            fitting = self.config.max_tokens // (lengths[numbers[0]] + 1)
            size = min(max(fitting, 1), self.config.max_sentences)
            yield numbers[:size]
            numbers = numbers[size:]

    def _search_batch(self, sources: list[Sequence[int]], n_best: int) -> list[list[Hypothesis]]:
        config, device = self.config, self.device
        rows = [torch.tensor([*ids, EOS]) for ids in sources]
        source = pad_sequence(rows, batch_first=True, padding_value=PAD)  # (B, S)
        limits = torch.tensor([config.length_limit(len(ids)) for ids in sources])
        autocast = torch.autocast(device.type, self.autocast, enabled=self.autocast is not None)
        with evaluating(self.model), autocast:
            return beam_search(
                self.model.start(source.to(device), config.beam),
                limits.to(device),
                beam=config.beam,
                n_best=n_best,
                penalty=config.length_penalty,
            )

    def _translation(self, hypothesis: Hypothesis) -> Translation:
        text = self.subwords.decode_target(hypothesis.tokens) if hypothesis.tokens else ""
        return Translation(text.replace("\n", " "), hypothesis.log_prob, hypothesis.score)
