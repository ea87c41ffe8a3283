"""All kinds and all choices of position ids, by name. One representation = one line."""

from __future__ import annotations

import inspect
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from importlib.metadata import entry_points
from typing import Generic, TypeVar

from torch import nn

from shapeshift._system import own_modules
from shapeshift._system.errors import ShapeshiftError, nearest

from .alibi import ALiBi
from .axial import Axial
from .base import Representation
from .checks import SEVERAL, SIZES, check_arguments
from .cope import CoPE
from .deberta import DeBERTa
from .fire import FIRE
from .fox import FoX
from .inkling import Inkling
from .kerple import KERPLE
from .learned import Learned
from .path import PaTH
from .pope import PoPE
from .position_ids import Abacus, Absolute, Coupled, Packed, Randomized, Shifted
from .rotary import Rotary
from .shaw import Shaw, Skew
from .sinusoidal import Sinusoidal
from .t5 import T5
from .transformer_xl import TransformerXL
from .tupe import TUPE
from .xpos import XPos

M = TypeVar("M", bound=nn.Module, covariant=True)


@dataclass(frozen=True)
class Entry(Generic[M]):
    """A registered class, its one-line summary and its source."""

    build: type[M]
    summary: str
    source: str

    def options(self) -> Mapping[str, inspect.Parameter]:
        """Return the constructor's parameters that a user chooses.

        Parameters that the model fixes (widths, heads, causality) are left out.
        """
        return {
            name: each
            for name, each in inspect.signature(self.build).parameters.items()
            if name not in FIXED_BY_MODEL and each.kind not in SEVERAL
        }


FIXED_BY_MODEL = (*SIZES, "causal")

KINDS: dict[str, Entry[Representation]] = {
    "none": Entry(Representation, "no position", "base class"),
    "sinusoidal": Entry(Sinusoidal, "sines and cosines", "Vaswani et al. 2017, §3.5"),
    "learned": Entry(Learned, "a trained vector for each position", "Gehring et al. 2017, §3.1"),
    "shaw": Entry(Shaw, "clipped relative keys and values", "Shaw et al. 2018, §3"),
    "skew": Entry(Skew, "clipped relative keys, by head", "Huang et al. 2019, §3.4"),
    "t5": Entry(T5, "a trained bias for each range of distances", "Raffel et al. 2020, §2.1"),
    "alibi": Entry(ALiBi, "a penalty that grows with distance", "Press et al. 2022, §3"),
    "kerple": Entry(KERPLE, "a trained penalty, logarithmic in distance", "Chi et al. 2022, §4"),
    "fire": Entry(FIRE, "a trained function of relative distance", "Li et al. 2024, §4"),
    "rotary": Entry(Rotary, "queries and keys rotated by position", "Su et al. 2021, §3.4.2"),
    "xpos": Entry(XPos, "rotary that decays with distance", "Sun et al. 2022, §3.1"),
    "tupe": Entry(TUPE, "positions and words compared separately", "Ke et al. 2021, §3.1"),
    "transformer-xl": Entry(
        TransformerXL, "queries compared with sines of the distance", "Dai et al. 2019, §3.3"
    ),
    "deberta": Entry(DeBERTa, "words and distances compared, both ways", "He et al. 2021, §3.1"),
    "cope": Entry(CoPE, "positions counted by gates from the content", "Golovneva et al. 2024, §4"),
    "fox": Entry(FoX, "a forget gate that lowers earlier scores", "Lin et al. 2025, §3"),
    "pope": Entry(PoPE, "angles by position, lengths by content", "Gopalakrishnan et al. 2025, §3"),
    "path": Entry(PaTH, "keys transformed by each token on the way", "Yang et al. 2025, §2"),
    "inkling": Entry(Inkling, "functions of the distance, mixed by tokens", "the model Inkling"),
}

KINDS_WITH_AXES: dict[str, Entry[Representation]] = {
    "axial": Entry(Axial, "rotary positions for each axis of an image", "Heo et al. 2024, §3.1"),
}
"""Kinds for models whose tokens have several numbers each, unlike those of this package."""

POSITION_IDS: dict[str, Entry[Absolute]] = {
    "absolute": Entry(Absolute, "0, 1, 2, …", "Vaswani et al. 2017"),
    "shifted": Entry(Shifted, "a random offset while training", "Kiyono et al. 2021, §2.3"),
    "randomized": Entry(Randomized, "random, with gaps, in order", "Ruoss et al. 2023, §3"),
    "packed": Entry(Packed, "counted again after each separator", "several texts in a sequence"),
    "abacus": Entry(
        Abacus, "counted in each number, from its first digit", "McLeish et al. 2024, §3"
    ),
    "coupled": Entry(Coupled, "a function of the tokens", "Cho et al. 2024, §3"),
}


ENTRY_POINTS = "shapeshift.kinds"
"""Group of the entry points by which an installed package brings kinds, each under a name."""

_own: dict[str, Entry[Representation]] = {}


def kind_names() -> list[str]:
    """Return the names of all kinds here: of `KINDS`, `KINDS_WITH_AXES` and installed packages."""
    return [*KINDS, *KINDS_WITH_AXES, *entry_points(group=ENTRY_POINTS).names]


def find_kind(name: str) -> Entry[Representation]:
    """Return the entry of a kind: one of `KINDS` or `KINDS_WITH_AXES`, the name of an entry point
    of an installed package, or a class of the user's own, `package.module:Class`; see
    `own_modules`.

    Raises:
        ShapeshiftError: there is none of this name, or it is no `Representation`.
    """
    if name in KINDS:
        return KINDS[name]
    if name in KINDS_WITH_AXES:
        return KINDS_WITH_AXES[name]
    if name not in _own:
        if own_modules.is_own(name):
            source = name
        else:
            check_name(kind_names(), name, "kind", ", or module:Class")
            source = entry_points(group=ENTRY_POINTS)[name].value
        build = own_modules.find(source, "kind")
        if not (isinstance(build, type) and issubclass(build, Representation)):
            raise ShapeshiftError(
                f"kind {name!r}: expected a subclass of shapeshift.positions.Representation, got"
                f" {build!r}"
            )
        summary = (inspect.getdoc(build) or "").partition("\n")[0].rstrip(".")
        _own[name] = Entry(build, summary, source)
    return _own[name]


def check_name(names: Collection[str], name: str, what: str, more: str = "") -> None:
    """Raise a `ShapeshiftError` with the nearest known name if `name` is unknown; `more` follows
    the list of names."""
    if name not in names:
        raise ShapeshiftError(
            f"unknown {what} {name!r}{nearest(str(name), names)} (known: {', '.join(names)}{more})"
        )


def check_options(entry: Entry[nn.Module], options: Mapping[str, object], what: str) -> None:
    """Raise an error if `options` holds a name or a value that the constructor does not take, or
    lacks one that has no default."""
    known = entry.options()
    for option in options:
        if option not in known:
            takes = f"it takes {', '.join(known)}" if known else "it takes none"
            raise ShapeshiftError(
                f"{what} has no option {option!r}{nearest(option, known)} ({takes})"
            )
    for name, parameter in known.items():
        if parameter.default is parameter.empty and name not in options:
            raise ShapeshiftError(
                f"{what} needs the option {name!r}, which has no default; the model itself gives"
                f" {', '.join(FIXED_BY_MODEL)} only"
            )
    check_arguments(entry.build.__init__, options, entry.build.__name__)


FOREIGN_POSITIONS = {
    elsewhere: scheme
    for scheme, names in {
        "alibi": "alibi_pos_bias",
        "ape": "sin sincos sinusoid sinusoidal_absolute",
        "learned": "embeddings learnable learned_absolute trainable",
        "nope": "no nopos no_pos no_position no_positions without",
        "rope": "roformer rotary_embedding rotary_embeddings rotary_pos_emb",
        "rpe": "relative relative_key relative_key_query shaw_relative",
        "t5": "relative_bias relative_position_bias t5_bias rel_pos_bias",
        "xpos": "rotary_xpos",
    }.items()
    for elsewhere in names.split()
}
"""Name of a position representation elsewhere → scheme here."""
