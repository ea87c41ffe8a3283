"""MarianMT's subwords as ours.

MarianMT splits a text with a SentencePiece model of its language and numbers the pieces by
`vocab.json`, one list for both languages or one for each. Here, the SentencePiece model itself has
the ids, five special ones first.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from shapeshift._system.errors import ShapeshiftError
from shapeshift.data.subwords import SPECIAL_PIECES, UNK

LANGUAGE = re.compile(r">>.+<<")
"""A piece that MarianMT takes from the beginning of a source: the language to translate to."""


@dataclass(frozen=True)
class Side:
    """One language's subwords.

    Attributes:
        model: a SentencePiece model for `data.subwords`.
        rows: our id → the id of MarianMT's; None where it has none. Pieces of the SentencePiece
            model that the vocabulary lacks are `<unk>` to MarianMT.
        never: our ids that MarianMT cannot generate.
    """

    model: bytes
    rows: list[int | None]
    never: set[int]


def convert(
    spm: bytes,
    vocabulary: Mapping[str, int],
    pad: int,
    unk: int,
    start: int,
    eos: int,
    *,
    reads_languages: bool,
) -> Side:
    """Return the subwords of one side.

    Args:
        spm: its SentencePiece model.
        vocabulary: piece → id.
        pad, unk, start, eos: ids; `start` is the decoder's first one.
        reads_languages: `>>deu<<` in a text is one piece. Then it has a space before it where it is
            decoded, because SentencePiece puts one before each text.

    Raises:
        ShapeshiftError: there are pieces without an id or ids without a piece.
    """
    if sorted(vocabulary.values()) != list(range(len(vocabulary))):
        raise ShapeshiftError(
            f"vocab.json has {len(vocabulary):,} pieces, expected one for each id from 0 on"
        )
    proto = read_proto(spm)
    kinds = type(proto).SentencePiece
    split_into = {
        each.piece: each for each in proto.pieces if each.type not in (kinds.UNKNOWN, kinds.CONTROL)
    }
    # MarianMT begins with its padding; ours then has no embedding, and is never generated.
    special = [None if pad == start else pad, unk, start, eos, vocabulary.get(SPECIAL_PIECES[4])]
    ordinary = {i: piece for piece, i in vocabulary.items() if i not in special}
    missing = [piece for piece in split_into if piece not in vocabulary]
    rows = [*special, *sorted(ordinary), *(unk for _ in missing)]
    never = {n for n, row in enumerate(rows) if row is None or n >= len(rows) - len(missing)}
    lowest = min((each.score for each in split_into.values()), default=0.0) - 1
    del proto.pieces[:]
    for n, piece in enumerate(SPECIAL_PIECES):
        kind = kinds.UNKNOWN if n == UNK else kinds.CONTROL
        proto.pieces.add(piece=piece, score=0.0, type=kind)
    for piece in (*(ordinary[i] for i in sorted(ordinary)), *missing):
        if piece in split_into:
            proto.pieces.append(split_into[piece])
        elif reads_languages and LANGUAGE.fullmatch(piece):
            proto.pieces.add(piece=f"▁{piece}", score=0.0, type=kinds.USER_DEFINED)
        else:  # of the other language
            name = f"<{piece}>" if piece in SPECIAL_PIECES else piece
            proto.pieces.add(piece=name, score=lowest, type=kinds.UNUSED)
    spec = proto.trainer_spec
    spec.pad_id, spec.unk_id, spec.bos_id, spec.eos_id = range(4)
    spec.pad_piece, spec.unk_piece, spec.bos_piece, spec.eos_piece = SPECIAL_PIECES[:4]
    spec.vocab_size = len(proto.pieces)
    return Side(proto.SerializeToString(), rows, never)


def read_proto(spm: bytes) -> Any:
    """Return a SentencePiece model as its protocol buffer."""
    from sentencepiece import sentencepiece_model_pb2

    module: Any = sentencepiece_model_pb2
    return module.ModelProto.FromString(spm)
