"""What to prepare and how to batch it: corpus, subwords, recipe, batches."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import Field, ValidationInfo, field_validator, model_validator

from shapeshift._system.errors import ShapeshiftError, unknown
from shapeshift._system.own_modules import find, is_own, source_sha256
from shapeshift._system.schema import HomePath, PlainName, Strict, added
from shapeshift.data.filter import FilterConfig

Split = Literal["train", "valid", "test"]
SPLITS: tuple[Split, ...] = ("train", "valid", "test")

CORPORA: dict[str, dict[str, Any]] = yaml.safe_load(
    Path(__file__).with_name("corpora.yaml").read_text("utf-8")
)
"""The papers' corpora by name, such as `wmt14-en-de` → the section `data.corpus`."""

SACREBLEU = "sacrebleu:"
"""What an entry begins with that is a test set of sacreBLEU's, such as `sacrebleu:wmt14/full`."""


def is_test_set(entry: str) -> bool:
    """Return whether an entry of a corpus names a test set of sacreBLEU's."""
    return entry.startswith(SACREBLEU)


def label(entry: str) -> str:
    """Return the name of an entry in results: `newstest2014` for `sacrebleu:wmt14/full`, as WMT
    named them until 2020; sacreBLEU's name for other test sets; a file prefix unchanged."""
    name = entry.removeprefix(SACREBLEU)
    if is_test_set(entry) and (year := re.fullmatch(r"wmt(0[89]|1\d|20)(/full)?", name)):
        return f"newstest20{year[1]}"
    return name


class Archive(Strict):
    """A tar or zip archive to download; a tar archive may be compressed.

    Attributes:
        url: an http or https URL.
        file: name that the archive gets in the corpus's `root`.
        hash: hash of the archive in hexadecimal, such as `sha256:…` or `md5:…`.
    """

    url: str = Field(pattern=r"^https?://[^/]+/")
    file: str = Field(pattern=r"^\w[\w.-]*$")
    hash: str = Field(pattern=r"^(sha256:[0-9a-f]{64}|md5:[0-9a-f]{32})$")


class _Text(Strict):
    """Fields shared by all corpora except the grammar."""

    @field_validator("target", check_fields=False)
    @classmethod
    def _two_languages(cls, target: str, info: ValidationInfo) -> str:
        if target == info.data.get("source"):
            raise ValueError(f"source and target are both {target!r}")
        return target

    @field_validator("valid", "test", "valid_references", "test_references", check_fields=False)
    @classmethod
    def _one_name_each(cls, entries: list[str], info: ValidationInfo) -> list[str]:
        named = info.field_name in SPLITS  # other references than test sets name no score
        names = [label(entry) for entry in entries if named or is_test_set(entry)]
        if twice := [name for name in names if names.count(name) > 1]:
            raise ValueError(f"two entries have the name {twice[0]!r} in results; leave one out")
        return entries

    def prefixes(self, split: Split) -> list[str]:
        """The entries of one split: file prefixes, splits of a hub dataset, or test sets."""
        entries: list[str] = getattr(self, split)
        return entries


class FilesCorpus(_Text):
    """Parallel text in two files for each entry, one sentence per line. The entry `train` stands
    for `<root>/train.<source>` and `<root>/train.<target>`, plain or gzipped (`train.en.gz`).

    An entry of `valid`, `test` or the references may also be a test set that sacreBLEU downloads,
    such as `sacrebleu:wmt14/full`.

    Attributes:
        root: folder that contains the files.
        source: language code of the source and extension of its files, such as `en`.
        target: language code of the target and extension of its files, such as `de`.
        train, valid, test: entries of this split, read one after the other.
        valid_references, test_references: entries whose target side is the reference when
            translations of `valid` or `test` are scored, one for each entry of that split. Set it
            if the text is tokenised or split into subwords, and the reference is raw text. By
            default the target side of the split is the reference.
        archive: a tar or zip archive to download if a file of the corpus is missing: its `url`, the
            name of its `file` in `root`, and its `hash` (`sha256:…` or `md5:…`). The missing files
            are unpacked from it into `root`.
    """

    corpus: Literal["files"] = "files"
    root: HomePath = Path(".")
    source: PlainName
    target: PlainName
    train: list[str] = Field(min_length=1)
    valid: list[str] = Field(min_length=1)
    test: list[str] = Field(min_length=1)
    valid_references: list[str] = added([])
    test_references: list[str] = added([])
    archive: Archive | None = added(None)

    @field_validator("valid_references", "test_references")
    @classmethod
    def _one_reference_each(cls, references: list[str], info: ValidationInfo) -> list[str]:
        split = str(info.field_name).removesuffix("_references")
        entries = info.data.get(split, references)
        if references and len(references) != len(entries):
            raise ValueError(f"has {len(references)} entries, but {split} has {len(entries)}")
        return references

    def references(self, split: Split) -> list[str]:
        """The entries that translations of a split are scored against; if empty, the split's own
        target side."""
        return {"train": [], "valid": self.valid_references, "test": self.test_references}[split]


class HubCorpus(_Text):
    """A dataset of the Hugging Face hub, or a local folder that the library `datasets` can read.

    The text is downloaded once and stored as text files under `root`; all later runs read these
    files. Entries of `valid` and `test` may also be test sets of sacreBLEU, such as
    `sacrebleu:wmt14/full`.

    Attributes:
        root: folder where the text is stored.
        repo: name of the dataset, such as `wmt/wmt14`, or the path of a local folder.
        subset: configuration of the dataset, such as `de-en`, if it has several.
        revision: commit, branch or tag of the dataset's repository. Only a commit always means the
            same text.
        source, target: language code, such as `en`; also the key of its text in `column`.
        column: column of the dataset that holds the texts of both languages by their codes.
        columns: names of the source and the target column, if each language has a column of its
            own; `column` is then not used.
        train, valid, test: splits of the dataset, read one after the other.
        share: fraction of the training pairs to keep; each pair is kept or dropped at random.
        seed: seed of this random choice.
    """

    corpus: Literal["hub"] = "hub"
    root: HomePath = Path("corpora")
    repo: str = Field(min_length=1)
    subset: str | None = None
    revision: str | None = None
    source: PlainName
    target: PlainName
    column: str = "translation"
    columns: tuple[str, str] | None = None
    train: list[str] = Field(default=["train"], min_length=1)
    valid: list[str] = Field(default=["validation"], min_length=1)
    test: list[str] = Field(default=["test"], min_length=1)
    share: float = Field(default=1.0, gt=0.0, le=1.0)
    seed: int = Field(default=1, ge=0)

    @field_validator("columns")
    @classmethod
    def _two_columns(cls, columns: tuple[str, str] | None) -> tuple[str, str] | None:
        if columns is not None and columns[0] == columns[1]:
            raise ValueError(f"source and target are both the column {columns[0]!r}")
        return columns

    @field_validator("seed")
    @classmethod
    def _seed_of_a_choice(cls, seed: int, info: ValidationInfo) -> int:
        if seed != cls.model_fields["seed"].default and info.data.get("share") == 1.0:
            raise ValueError(f"{seed} has no effect with share=1.0; set share, or take seed out")
        return seed


class GrammarCorpus(Strict):
    """The built-in English-German grammar. No English sentence is in two splits.

    Attributes:
        seed: seed of the generated text.
        num_train, num_valid, num_test: number of sentence pairs of this split.
        min_words, max_words: minimum and maximum number of words of an English sentence.
        reverse: translate from German to English instead; the sentences are the same.
    """

    corpus: Literal["grammar"] = "grammar"
    seed: int = Field(default=1, ge=0)
    num_train: int = Field(default=20_000, ge=1)
    num_valid: int = Field(default=500, ge=1)
    num_test: int = Field(default=1_000, ge=1)
    min_words: int = Field(default=3, ge=3)
    max_words: int = Field(default=60, ge=3)
    reverse: bool = added(False)

    @field_validator("max_words")
    @classmethod
    def _word_limits(cls, max_words: int, info: ValidationInfo) -> int:
        min_words = info.data.get("min_words", max_words)
        if min_words > max_words:
            raise ValueError(f"min_words={min_words} is over max_words={max_words}")
        return max_words

    def num_pairs(self, split: Split) -> int:
        """Sentence pairs of one split."""
        return {"train": self.num_train, "valid": self.num_valid, "test": self.num_test}[split]


Corpus = Annotated[FilesCorpus | HubCorpus | GrammarCorpus, Field(discriminator="corpus")]


class SubwordsConfig(Strict):
    """One or two SentencePiece models, or text that is already split.

    Attributes:
        algorithm: `bpe` (Sennrich et al. 2016) or `unigram` (Kudo 2018), trained on the text; or
            `presplit`, for text that subword-nmt has already split: spaces between the pieces, and
            `@@` after each piece except the last of a word. With `presplit`, only `vocab_size` and
            `joint` have an effect.
        vocab_size: number of pieces of each model, with the five special ones. The default suits
            the built-in grammar; use 8,000 for tens of thousands of real sentences, and 32,000 or
            more for WMT. With `presplit` it is a maximum, and the most frequent pieces are kept.
        joint: train one model for both languages; otherwise one for each.
        character_coverage: fraction of the characters of the text that become pieces; the rarest
            others become `<unk>`. SentencePiece requires at least 0.98.
        max_sentences: number of sentences (of both languages, if joint) to train a model on; a
            larger corpus is sampled.
        normalization: SentencePiece's rule. `nmt_nfkc` folds compatibility characters (`…` becomes
            `...`) and makes every Unicode space a space; `identity` does not change the text.
        models: folder of a run or of prepared data whose subword models are used instead of
            training new ones; the other settings of this section must be the same as there. With
            `training.init_from`, it is that run by default.
    """

    algorithm: Literal["bpe", "unigram", "presplit"] = "bpe"
    vocab_size: int = Field(default=4_000, ge=8)
    joint: bool = True
    character_coverage: float = Field(default=1.0, ge=0.98, le=1.0)
    max_sentences: int = Field(default=4_000_000, ge=1_000)
    normalization: Literal["nmt_nfkc", "nmt_nfkc_cf", "nfkc", "nfkc_cf", "identity"] = "nmt_nfkc"
    models: HomePath | None = added(None)


class Vanilla(Strict):
    """All pairs, unchanged (SHAPE, section 3.1)."""

    name: Literal["vanilla"] = "vanilla"


class Extrapolate(Strict):
    """Removes training pairs longer than `max_length` subwords on either side; valid and test do
    not change (SHAPE, section 3.1 and Table 3, which uses 50)."""

    name: Literal["extrapolate"] = "extrapolate"
    max_length: int = Field(
        default=50, ge=1, description="maximum length of either side, in subwords"
    )


class Interpolate(Strict):
    """Joins `num_joined` neighbouring pairs of train, valid and test into one, with `<sep>` between
    them (SHAPE, section 3.1 and Table 3, which uses 10). BLEU of joined texts counts each `<sep>`
    as three correct tokens; `BLEU by sentence` is also reported."""

    name: Literal["interpolate"] = "interpolate"
    num_joined: int = Field(default=10, ge=2, description="number of pairs joined into one")


class LengthSlice(Strict):
    """Keeps training pairs whose source length in subwords is in [min_length, max_length); valid
    and test do not change (NHK 2024, Figure 3). Without `max_length` there is no upper limit."""

    name: Literal["length_slice"] = "length_slice"
    min_length: int = Field(default=0, ge=0, description="shortest source, in subwords")
    max_length: int | None = Field(
        default=None, ge=1, description="first length above the slice, in subwords"
    )

    @field_validator("max_length")
    @classmethod
    def _some_lengths(cls, max_length: int | None, info: ValidationInfo) -> int | None:
        low = info.data.get("min_length", 0)
        if max_length is not None and max_length <= low:
            raise ValueError(f"no length is in [{low}, {max_length}); set it to {low + 1} or more")
        return max_length


class OwnRecipe(Strict):
    """Calls a function of your own with each training pair, a `shapeshift.data.builders.Pair`:
    `data.recipe=package.module:function`. It returns the pair, another one in its place, or None to
    leave it out; text that it changes is encoded again. Valid and test do not change. If its file
    changes, data are prepared anew, and runs are new ones."""

    name: Literal["own"] = "own"
    function: str = Field(description="`package.module:function`")
    options: dict[str, Any] = Field(default_factory=dict, description="keywords of the function")
    source: str = Field(default="", description="SHA-256 of its file; filled in")

    @model_validator(mode="after")
    def _fill_source(self) -> OwnRecipe:
        if not self.source:
            self.find()
            object.__setattr__(self, "source", source_sha256(self.function, "recipe"))
        return self

    def find(self) -> Callable[..., Any]:
        """Return the function.

        Raises:
            ShapeshiftError: there is none, it does not take the options, or its file is not that of
                these settings.
        """
        function: Callable[..., Any] = find(self.function, "recipe")
        try:
            inspect.signature(function).bind(None, **self.options)
        except TypeError as error:
            problem = f"{self.function} does not take a pair and these options: {error}"
            raise ShapeshiftError(f"{problem}; correct data.recipe.options") from error
        if self.source not in ("", source_sha256(self.function, "recipe")):
            raise ShapeshiftError(
                f"data.recipe: the file of {self.function} is not the one of these settings; bring"
                " it back, or set data.recipe.source=''"
            )
        return function


Recipe = Annotated[
    Vanilla | Extrapolate | Interpolate | LengthSlice | OwnRecipe, Field(discriminator="name")
]


class DataConfig(Strict):
    """Everything that prepared data depends on."""

    corpus: Corpus = Field(
        default=GrammarCorpus(), description="a section, or the name of one of the papers' corpora"
    )
    subwords: SubwordsConfig = SubwordsConfig()
    filter: FilterConfig | None = added(
        None,
        description="pairs that are left out; null leaves out training pairs with an empty"
        " side alone",
    )
    recipe: Recipe = Vanilla()

    @field_validator("recipe", mode="before")
    @classmethod
    def _find_own(cls, given: Any) -> Any:
        section = {"name": given} if is_own(given) else given
        name = section.get("name") if isinstance(section, dict) else None
        return {**section, "name": "own", "function": name} if is_own(name) else section

    @field_validator("corpus", mode="before")
    @classmethod
    def _expand_name(cls, given: Any) -> Any:
        section = {"corpus": given} if isinstance(given, str) else given
        name = section.get("corpus") if isinstance(section, dict) else None
        if not isinstance(name, str) or name in ("files", "hub", "grammar"):
            return section
        if name not in CORPORA:
            own = "; or files, hub or grammar, a section of your own"
            raise ValueError(unknown("unknown corpus", name, CORPORA, own))
        return {**CORPORA[name], **section, "corpus": CORPORA[name]["corpus"]}


class BatchConfig(Strict):
    """How sentence pairs are grouped into batches.

    Attributes:
        max_tokens: maximum number of tokens in a batch, with padding: the number of pairs times the
            length of the longest sentence, source or target, with `</s>`.
        max_sentences: maximum number of pairs in a batch.
        sort_window: number of shuffled pairs that are sorted by length together. A larger window
            needs less padding, a smaller one mixes the pairs more; null sorts the whole epoch.
    """

    max_tokens: int = Field(default=4_096, ge=2)
    max_sentences: int | None = Field(default=None, ge=1)
    sort_window: int | None = Field(default=100_000, ge=1)
