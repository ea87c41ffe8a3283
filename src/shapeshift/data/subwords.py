"""Subwords by SentencePiece, or of text that subword-nmt has already split, with the same five
special ids in every model. Special pieces are control symbols: no text encodes to them, so a
literal `<sep>` or `</s>` in a user's text is split into ordinary pieces. Only code inserts their
ids, such as SEP between the parts of a joined text. SentencePiece does not learn from literal
special pieces: characters that occur nowhere else become `<unk>`."""

from __future__ import annotations

import ctypes
import hashlib
import io
import mmap
import random
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import sentencepiece

from shapeshift._system.errors import ShapeshiftError, reason
from shapeshift._system.files import MAX_FILE, limited, read, save
from shapeshift.data.config import SubwordsConfig

PAD, UNK, BOS, EOS, SEP = range(5)
SPECIAL_PIECES = ("<pad>", "<unk>", "<s>", "</s>", "<sep>")
SEPARATOR = " <sep> "
"""What separates the parts of a joined text where it is written as text."""
CONTINUES = "@@"
"""The end of a piece of subword-nmt that continues in the next one: `extra@@ pol@@ ation`."""

PairSource = Callable[[], Iterable[tuple[str, ...]]]
Sentences = Callable[[], Iterator[str]]

# SentencePiece leaves out longer sentences without a word; its default is 4,192 bytes.
_MAX_SENTENCE_BYTES = 1 << 16
# Part of the model file, and of the result of unigram training: never the machine's own number.
_NUM_THREADS = 16
_THREAD_BYTES = 1 << 24  # twice the usual stack
_TOO_MANY = re.compile(r"value <= (\d+)")
_TOO_FEW = re.compile(r"smaller than required_chars\. \d+ vs (\d+)")


def join_ids(parts: Iterable[Sequence[int]]) -> list[int]:
    """Return the ids of all parts with SEP between them."""
    return [i for ids in parts for i in (SEP, *ids)][1:]


def split_parts(text: str) -> list[str]:
    """Return the parts of a joined text as it was written to a file, split at ` <sep> `."""
    return text.split(SEPARATOR)


class Subwords:
    """The subword models of a language pair: one for both languages, or one each.

    Ids: PAD 0, UNK 1, BOS 2, EOS 3, SEP 4, then ordinary pieces. Encoding adds none of the five
    but UNK, for characters that no piece covers.

    Attributes:
        joint: whether both languages have the same model.
        presplit: whether text is already split and its pieces are taken as they are.
        source_size, target_size: vocabulary sizes, special pieces included; `sizes` are both.
        fingerprint: SHA-256 (hexadecimal) of the models.
    """

    def __init__(self, source: bytes, target: bytes | None = None):
        """Load serialised models; without `target` the source model serves both languages.

        Raises:
            ValueError: what is given is not a model with our special pieces.
        """
        self.joint = target is None
        self._source = _model(source)
        self._target = self._source if target is None else _model(target)
        self.presplit = isinstance(self._source, Pieces)
        self.source_size: int = self._source.get_piece_size()
        self.target_size: int = self._target.get_piece_size()
        self.sizes = self.source_size, self.target_size
        digests = [hashlib.sha256(model).digest() for model in (source, target) if model]
        self.fingerprint = hashlib.sha256(b"".join(digests)).hexdigest()

    @classmethod
    def train(cls, pairs: PairSource, config: SubwordsConfig, directory: Path) -> Subwords:
        """Train on sentence pairs and write `joint.model`, or `source.model` and `target.model`.

        The same pairs and settings give the same model, byte for byte, with one version of
        SentencePiece. Sentences of more than 65,536 bytes are left out of training. `pairs` is
        called twice for each model and returns (source, target) texts.

        Raises:
            ShapeshiftError: `vocab_size` is too large or too small for the text (with the size
                that would do), or there is no text; also what `pairs` raises.
        """
        texts = _texts(pairs, config)
        models = {}
        for name, sentences in texts.items():
            try:
                models[name] = _train(sentences, config)
            except RuntimeError as error:
                raise _explain(error, name, texts, config) from error
        for name, model in models.items():
            save(directory / f"{name}.model", model)
        return cls(*models.values())

    @classmethod
    def load(cls, directory: Path) -> Subwords:
        """Load the models that `train` wrote.

        Raises:
            ShapeshiftError: there is none, or it is not a model of ours.
        """
        joint, *both = (directory / f"{name}.model" for name in ("joint", "source", "target"))
        paths = [joint] if joint.exists() else both
        if not all(path.is_file() for path in paths):
            expected = "expected joint.model, or source.model and target.model"
            raise ShapeshiftError(f"no subword model; {expected}", path=directory)
        try:
            return cls(*(read(path, MAX_FILE) for path in paths))
        except (OSError, ValueError) as error:
            problem = ShapeshiftError(
                f"cannot be used ({reason(error)}); bring the models back that the run or the data"
                " were made with",
                path=directory,
            )
            raise limited(error, directory) or problem from error

    def encode_source(self, texts: Sequence[str], *, joined: bool = False) -> list[list[int]]:
        """Return the ids of each text, without `<s>` and `</s>`; of joined texts, those of their
        parts with SEP between them."""
        return _encode(self._source, texts, joined)

    def encode_target(self, texts: Sequence[str], *, joined: bool = False) -> list[list[int]]:
        """Return the ids of each text; see `encode_source`."""
        return _encode(self._target, texts, joined)

    def source_pieces(self, ids: Iterable[int]) -> list[str]:
        """Return the piece of each source id, as the model writes it."""
        return [self._source.id_to_piece(int(i)) for i in ids]

    def target_pieces(self, ids: Iterable[int]) -> list[str]:
        """Return the piece of each target id, as the model writes it."""
        return [self._target.id_to_piece(int(i)) for i in ids]

    def check_source(self, text: str) -> None:
        """Raise `ShapeshiftError` for raw text, where the models are for text that is split: more
        than a tenth of its words are no pieces. Text for SentencePiece is never refused."""
        if not isinstance(self._source, Pieces):
            return
        pieces = " ".join(split_parts(text)).split()
        # Even text that is split for this vocabulary may have characters that it lacks.
        words = (piece for piece in pieces if len(piece.removesuffix(CONTINUES)) > 1)
        unknown = [word for word in words if word not in self._source.ids]
        if len(unknown) * 10 > len(pieces):
            raise ShapeshiftError(
                f"{unknown[0]!r} is no piece of the vocabulary, as much of this line: this model"
                " translates text that is tokenised and split (`@@`) as its training text was;"
                " prepare it with the same tokeniser and BPE codes"
            )

    def decode_target(self, ids: Iterable[int]) -> str:
        """Return the text of target ids. PAD, BOS and EOS leave no trace. SEP becomes ` <sep> `, as
        in the reference text of joined datasets; UNK becomes SentencePiece's ` ⁇ `."""
        # Models drop control symbols when they decode, and with them any trace of SEP.
        parts: list[list[int]] = [[]]
        for i in ids:
            if i == SEP:
                parts.append([])
            else:
                parts[-1].append(int(i))
        return SEPARATOR.join(map(self._target.decode, parts))


class Pieces:
    """A vocabulary for text that is already split, with the methods of a SentencePiece model: its
    pieces in the order of their ids, special ones first, to which no text encodes."""

    def __init__(self, pieces: Sequence[str]):
        self._pieces = pieces
        self.ids = {piece: i for i, piece in enumerate(pieces) if i >= len(SPECIAL_PIECES)}

    def get_piece_size(self) -> int:
        return len(self._pieces)

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        return [[self.ids.get(piece, UNK) for piece in text.split()] for text in texts]

    def id_to_piece(self, i: int) -> str:
        return self._pieces[i]

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of ids, its pieces joined; special ids but UNK leave no trace."""
        known = [i for i in ids if i == UNK or i >= len(SPECIAL_PIECES)]
        return join_pieces(" ".join("⁇" if i == UNK else self._pieces[i] for i in known))


def join_pieces(text: str) -> str:
    """Return split text with its pieces joined: `@@ ` is taken out, at the end `@@` alone."""
    return text.replace(CONTINUES + " ", "").removesuffix(CONTINUES)


def _model(data: bytes) -> Any:
    """Return a vocabulary of pieces, which is a text file that begins with the special ones, or a
    SentencePiece model."""
    if data.startswith("".join(piece + "\n" for piece in SPECIAL_PIECES).encode()):
        return Pieces(data.decode().splitlines())
    model = sentencepiece.SentencePieceProcessor()
    try:
        model.LoadFromSerializedProto(data)
    except (RuntimeError, OSError) as error:
        raise ValueError(f"not a SentencePiece model: {reason(error)}") from error
    pieces = model.id_to_piece([*range(model.get_piece_size())])  # an error where one is no text
    if tuple(pieces[: len(SPECIAL_PIECES)]) != SPECIAL_PIECES:
        raise ValueError(f"the first pieces are not {' '.join(SPECIAL_PIECES)}")
    return model


def _encode(model: Any, texts: Sequence[str], joined: bool) -> list[list[int]]:
    """Encode texts as SentencePiece reads them in training: without the `\\r` of a CRLF file."""
    if joined:
        return [join_ids(_encode(model, split_parts(text), joined=False)) for text in texts]
    ids: list[list[int]] = model.encode([text.rstrip("\r") for text in texts])
    return ids


def _train(sentences: Sentences, config: SubwordsConfig) -> bytes:
    """Train one model on what `sentences` yields and return it serialised."""
    if config.algorithm == "presplit":
        counts = Counter(piece for text in sentences() for piece in text.split())
        known = sorted(counts.keys() - {*SPECIAL_PIECES}, key=lambda piece: (-counts[piece], piece))
        if not known:
            raise ShapeshiftError("the training text is empty: there are no pieces to be counted")
        pieces = (*SPECIAL_PIECES, *known)[: config.vocab_size]
        return "".join(piece + "\n" for piece in pieces).encode()
    # Where a thread of SentencePiece cannot start, it ends the process.
    mmap.mmap(-1, _NUM_THREADS * _THREAD_BYTES).close()
    model = io.BytesIO()
    caught: list[BaseException] = []
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=_catching(_sample(sentences, config.max_sentences), caught),
            model_writer=model,
            model_type=config.algorithm,
            vocab_size=config.vocab_size,
            character_coverage=config.character_coverage,
            normalization_rule_name=config.normalization,
            input_sentence_size=config.max_sentences,
            shuffle_input_sentence=True,  # without effect: there are never more sentences
            max_sentence_length=_MAX_SENTENCE_BYTES,
            num_threads=_NUM_THREADS,
            minloglevel=2,
            pad_id=PAD,
            unk_id=UNK,
            bos_id=BOS,
            eos_id=EOS,
            pad_piece=SPECIAL_PIECES[PAD],
            control_symbols=[SPECIAL_PIECES[SEP]],
        )
    except RuntimeError:
        if caught:  # SentencePiece hides an exception from the text inside its own
            raise caught[0] from None
        raise
    # glibc would keep the memory of the sentences.
    with suppress(OSError, AttributeError, TypeError):
        ctypes.CDLL(None).malloc_trim(0)
    return model.getvalue()


def _sample(sentences: Sentences, number: int) -> Iterator[str]:
    """Yield a random sample of the sentences in their order, or all if there are too few.
    SentencePiece would draw another sample in each process. The text is read twice, first to count,
    so that no sentence stays in memory (Knuth, volume 2, algorithm 3.4.2S)."""

    def used() -> Iterator[str]:  # what SentencePiece does not leave out itself
        for text in sentences():
            if "\u2585" not in text and 0 < len(text.rstrip("\r").encode()) <= _MAX_SENTENCE_BYTES:
                yield text

    draws = random.Random(0)
    for left, text in zip(range(sum(1 for _ in used()), 0, -1), used(), strict=False):
        if draws.random() * left < number:
            number -= 1
            yield text


def _catching(sentences: Iterator[str], caught: list[BaseException]) -> Iterator[str]:
    try:
        yield from sentences
    except (Exception, KeyboardInterrupt) as error:
        caught.append(error)
        raise


def _explain(
    error: RuntimeError, name: str, texts: dict[str, Sentences], config: SubwordsConfig
) -> Exception:
    """Turn an error of SentencePiece about the vocabulary size into one that names a size that
    works for all texts, or another setting if no size does."""
    message, key = str(error), "data.subwords.vocab_size"
    text = "training text" if name == "joint" else f"{name} side of the training text"
    if match := _TOO_MANY.search(message):
        most = int(match[1])
        least = max(8, *(_least_size(each, config) for each in texts.values()))  # of SubwordsConfig
        if least > most:
            unigram = config.algorithm == "unigram"
            other = "data.subwords.algorithm=bpe" if unigram else "data.subwords.joint=true"
            return ShapeshiftError(
                f"the {text} is too small for {config.algorithm} subwords: it has no more than"
                f" {most} pieces, and {least} are needed; set {other}, or use more text"
            )
        problem, remedy = f"more than the {text} can fill", f"{most} or less"
    elif match := _TOO_FEW.search(message):
        problem = f"less than the characters of the {text} need"
        remedy = f"{match[1]} or more, or lower character_coverage"
    elif "sentences_.empty()" in message:
        return ShapeshiftError(f"the {text} is empty: no subword model can be trained")
    else:
        return error
    return ShapeshiftError(f"{key}={config.vocab_size} is {problem}; set {key} to {remedy}")


def normaliser(rule: str) -> Callable[[str], str]:
    """Return what a rule of SentencePiece (`SubwordsConfig.normalization`) does to a text; white
    space stays."""
    normalise: Callable[[str], str] = sentencepiece.SentencePieceNormalizer(
        rule_name=rule,
        add_dummy_prefix=False,
        escape_whitespaces=False,
        remove_extra_whitespaces=False,
    ).normalize
    return normalise


def least_size(pairs: PairSource, config: SubwordsConfig) -> int:
    """Return the smallest `vocab_size` with room for the characters of the text (see
    `Subwords.train`), of which `character_coverage` may leave some out; 0 for text without any. Not
    for `presplit`, which takes any size."""
    return max(_least_size(each, config) for each in _texts(pairs, config).values())


def fitting_size(pairs: PairSource, config: SubwordsConfig) -> int:
    """Return `vocab_size`, or the largest size that a text with fewer different pieces can fill. It
    trains the subword models."""
    size = config.vocab_size
    for sentences in _texts(pairs, config).values():
        try:
            _train(sentences, config)
        except RuntimeError as error:
            if match := _TOO_MANY.search(str(error)):
                size = min(size, int(match[1]))
    return size


def _texts(pairs: PairSource, config: SubwordsConfig) -> dict[str, Sentences]:
    """Return the training text of each subword model, by the model's name."""
    if config.joint:
        return {"joint": lambda: (x for pair in pairs() for x in pair)}
    return {
        "source": lambda: (source for source, _ in pairs()),
        "target": lambda: (target for _, target in pairs()),
    }


def _least_size(sentences: Sentences, config: SubwordsConfig) -> int:
    """Return how many pieces SentencePiece needs for the characters of a text."""
    try:
        _train(sentences, config.model_copy(update={"vocab_size": len(SPECIAL_PIECES)}))
    except RuntimeError as error:
        if match := _TOO_FEW.search(str(error)):
            return int(match[1])
    return 0
