"""What to prepare and how to batch it: corpus, subwords, dataset, batches."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, model_validator

from shapeshift.schema import Strict

Split = Literal["train", "valid", "test"]
SPLITS: tuple[Split, ...] = ("train", "valid", "test")


class FilesCorpus(Strict):
    """Parallel text in files `<root>/<prefix>.<language>`, plain or with `.gz` after it.

    Attributes:
        root: the folder that prefixes are relative to.
        source: extension of the source side, such as `en`.
        target: extension of the target side, such as `de`.
        train, valid, test: prefixes, read one after the other.
    """

    corpus: Literal["files"] = "files"
    root: Path = Path(".")
    source: str = Field(min_length=1)
    target: str = Field(min_length=1)
    train: list[str] = Field(min_length=1)
    valid: list[str] = Field(min_length=1)
    test: list[str] = Field(min_length=1)

    @model_validator(mode="after")
    def _two_languages(self) -> FilesCorpus:
        if self.source == self.target:
            raise ValueError(f"source and target are both {self.source!r}: they name the same file")
        return self

    def prefixes(self, split: Split) -> list[str]:
        """The prefixes of one split."""
        return {"train": self.train, "valid": self.valid, "test": self.test}[split]


class GrammarCorpus(Strict):
    """The built-in English-German grammar. No English sentence stands in two splits.

    Attributes:
        seed: the text is a function of the seed and of the word limits alone.
        num_train, num_valid, num_test: sentence pairs of each split.
        min_words, max_words: length of the English sentence, both ends included.
    """

    corpus: Literal["grammar"] = "grammar"
    seed: int = Field(default=1, ge=0)
    num_train: int = Field(default=20_000, ge=1)
    num_valid: int = Field(default=500, ge=1)
    num_test: int = Field(default=1_000, ge=1)
    min_words: int = Field(default=3, ge=1)
    max_words: int = Field(default=60, ge=1)

    @model_validator(mode="after")
    def _word_limits(self) -> GrammarCorpus:
        if self.min_words > self.max_words:
            raise ValueError(f"min_words={self.min_words} is over max_words={self.max_words}")
        return self

    def num_pairs(self, split: Split) -> int:
        """Sentence pairs of one split."""
        return {"train": self.num_train, "valid": self.num_valid, "test": self.num_test}[split]


Corpus = Annotated[FilesCorpus | GrammarCorpus, Field(discriminator="corpus")]


class SubwordsConfig(Strict):
    """The SentencePiece model, or models.

    Attributes:
        algorithm: `bpe` (Sennrich et al. 2016) or `unigram` (Kudo 2018).
        vocab_size: pieces of each model, with the five special ones. The default suits the built-in
            grammar; tens of thousands of real sentences fill 8,000, WMT 32,000 and more.
        joint: one model for both languages; otherwise one each.
        character_coverage: share of the characters that become pieces; the rest is `<unk>`.
        max_sentences: sentences (of both languages, if joint) that a model is trained on; a
            larger corpus is sampled.
        normalization: SentencePiece's rule. `nmt_nfkc` folds compatibility characters (`…` becomes
            `...`) and makes every Unicode space a space; `identity` leaves the text alone.
    """

    algorithm: Literal["bpe", "unigram"] = "bpe"
    vocab_size: int = Field(default=4_000, ge=8)
    joint: bool = True
    character_coverage: float = Field(default=1.0, gt=0.0, le=1.0)
    max_sentences: int = Field(default=4_000_000, ge=1_000)
    normalization: Literal["nmt_nfkc", "nmt_nfkc_cf", "nfkc", "nfkc_cf", "identity"] = "nmt_nfkc"


class Vanilla(Strict):
    """All pairs as they are (SHAPE, section 3.1)."""

    name: Literal["vanilla"] = "vanilla"


class Extrapolate(Strict):
    """Train without pairs that are longer than `max_length` subwords on either side; valid and
    test as they are (SHAPE, section 3.1 and Table 3, which has 50)."""

    name: Literal["extrapolate"] = "extrapolate"
    max_length: int = Field(default=50, ge=1, description="subwords, of either side")


class Interpolate(Strict):
    """Train, valid and test with `num_joined` neighbouring pairs made into one, `<sep>` between
    them (SHAPE, section 3.1 and Table 3, which has 10)."""

    name: Literal["interpolate"] = "interpolate"
    num_joined: int = Field(default=10, ge=2, description="pairs made into one")


class LengthSlice(Strict):
    """Train on the pairs whose source length in subwords is in [min_length, max_length); valid and
    test as they are (NHK 2024, Figure 3). Without `max_length` the slice has no upper end."""

    name: Literal["length_slice"] = "length_slice"
    min_length: int = Field(default=0, ge=0, description="shortest source, in subwords")
    max_length: int | None = Field(default=None, ge=1, description="where longer sources begin")

    @model_validator(mode="after")
    def _not_empty(self) -> LengthSlice:
        if self.max_length is not None and self.min_length >= self.max_length:
            raise ValueError(
                f"no length is in [{self.min_length}, {self.max_length}): "
                "min_length must be under max_length"
            )
        return self


Dataset = Annotated[Vanilla | Extrapolate | Interpolate | LengthSlice, Field(discriminator="name")]


class DataConfig(Strict):
    """Everything that prepared data depends on."""

    corpus: Corpus = GrammarCorpus()
    subwords: SubwordsConfig = SubwordsConfig()
    dataset: Dataset = Vanilla()


class BatchConfig(Strict):
    """How pairs are put together into batches.

    Attributes:
        max_tokens: padded tokens of a batch: sentences x the longer of source and target, each
            with its `</s>`, in the longest pair of the batch.
        max_sentences: pairs of a batch at most.
        window: pairs that are sorted by length together. A larger window pads less, a smaller one
            mixes more; None sorts the whole epoch.
    """

    max_tokens: int = Field(default=4_096, ge=2)
    max_sentences: int | None = Field(default=None, ge=1)
    window: int | None = Field(default=100_000, ge=1)
