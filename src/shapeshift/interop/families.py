"""How the position embeddings of Hugging Face models number their tokens, family by family.

The classes are known by name, so nothing here imports `transformers`. A position embedding is a
table; the number that a token gets is a *row* of it. Families differ in where the rows of a
sequence begin (BART: row 2) and in whether padding has a row of its own (RoBERTa, OPT, M2M100).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from shapeshift.positions.sinusoidal import Channels, Sinusoidal


@dataclass(frozen=True)
class Family:
    """Position embeddings that number tokens in the same way.

    Args:
        start: the row of the first token, where it is not behind the row of padding.
        padding_row: of padding, which no shift may move, or the module's attribute that holds it;
            None if there is none.
        table: the attribute that holds the table `(rows, D)`; None if the module is called with
            rows, and then it need not have a table at all.
        channels: the order of a sinusoidal table's channels; None if the table is learned.
    """

    start: int = 0
    padding_row: int | str | None = None
    table: str | None = "weight"
    channels: Channels | None = None

    def padding(self, module: nn.Module) -> int | None:
        """Return the row of padding, or None. A padding row after the first token's row belongs to
        a token."""
        row = self.padding_row
        if isinstance(row, str):
            row = getattr(module, row, None)
        return None if row is None or (self.start and row >= self.start) else row

    def first(self, module: nn.Module) -> int:
        """Return the row of a sequence's first token."""
        padding = self.padding(module)
        return self.start or (0 if padding is None else padding + 1)

    def table_of(self, module: nn.Module) -> Tensor | None:
        """Return the table `(rows, D)`, or None if the module has no known table."""
        table = getattr(module, self.table or "weight", None)
        known = self.table is not None or isinstance(module, nn.Embedding)
        return table if known and isinstance(table, Tensor) else None

    def formula(self, table: Tensor, rows: Tensor) -> Tensor:
        """Return the vectors `(T, D)` of `rows (T,)` by the formula of a sinusoidal `table (n, D)`,
        also beyond its end."""
        assert self.channels is not None, "the table is learned"
        sinusoidal = Sinusoidal(dim=table.shape[1], channels=self.channels)
        return sinusoidal.encode(rows.unsqueeze(0), table).squeeze(0)

    def is_sinusoidal(self, module: nn.Module) -> bool:
        """Return whether the table is sinusoidal and not trained."""
        table = self.table_of(module)
        if self.channels is None or table is None or (table.is_leaf and table.requires_grad):
            return False
        rows = torch.arange(table.shape[0], device=table.device)
        padding = self.padding(module)
        rows = rows if padding is None else rows[rows != padding]
        # Loose: half precision rounds, and M2M100 computes its angles in single precision.
        return torch.allclose(self.formula(table, rows), table[rows], atol=1e-2)


CALLED_WITH_ROWS = Family(padding_row="padding_idx", table=None)
"""A plain `nn.Embedding`, or what wraps one."""

_FROM_0, _FROM_2 = Family(), Family(start=2)
_MARIAN = Family(channels="halves")
_M2M100 = Family(padding_row="padding_idx", table="weights", channels="tensor2tensor")

FAMILIES: dict[str, Family] = {
    "BlenderbotLearnedPositionalEmbedding": _FROM_0,
    "BlenderbotSmallLearnedPositionalEmbedding": _FROM_0,
    "BartLearnedPositionalEmbedding": _FROM_2,
    "LEDLearnedPositionalEmbedding": _FROM_0,
    "BigBirdPegasusLearnedPositionalEmbedding": _FROM_0,
    "MBartLearnedPositionalEmbedding": _FROM_2,
    "MvpLearnedPositionalEmbedding": _FROM_2,
    "PLBartLearnedPositionalEmbedding": _FROM_2,
    "BioGptLearnedPositionalEmbedding": _FROM_2,
    "OPTLearnedPositionalEmbedding": Family(start=2, padding_row=1),
    "TrOCRLearnedPositionalEmbedding": _FROM_2,
    "MarianSinusoidalPositionalEmbedding": _MARIAN,
    "PegasusSinusoidalPositionalEmbedding": _MARIAN,
    "M2M100SinusoidalPositionalEmbedding": _M2M100,
    "NllbMoeSinusoidalPositionalEmbedding": _M2M100,
    "Speech2TextSinusoidalPositionalEmbedding": _M2M100,
    "TrOCRSinusoidalPositionalEmbedding": _M2M100,
    "modeling_fsmt.SinusoidalPositionalEmbedding": replace(_M2M100, table="weight"),
    "WhisperPositionalEmbedding": _FROM_0,
    "XGLMSinusoidalPositionalEmbedding": replace(_M2M100, start=2),
}
"""By the class of the position embedding; with its file where others use the same name."""

NAMES = ("position_embeddings", "position_embedding", "positions_embed", "wpe")
"""What a module calls a plain `nn.Embedding` of its tokens' positions."""

TOKENS = (
    "tokens", "word_embeddings", "token_embedding", "tokens_embed", "embed_tokens", "embeddings",
    "wte",
)  # fmt: skip
"""What it calls the embedding of its tokens. Without one, a table of these names is not of tokens'
positions: LUKE's entities have one, too."""

OTHERS = ("DecisionTransformerGPT2Model", "LayoutLMv2Embeddings")
"""Classes whose table is not one of tokens' positions alone: steps, and patches of an image."""


def family_of(module: nn.Module) -> Family:
    """Return the family of a position embedding; a subclass belongs to its base's."""
    return next((FAMILIES[name] for name in _names(module) if name in FAMILIES), CALLED_WITH_ROWS)


def find(model: nn.Module) -> Iterator[str]:
    """Yield the names of the position embeddings in `model`: of the known classes, and tables that
    stand next to the embedding of the tokens."""
    for name, module in model.named_modules():
        if family_of(module) is not CALLED_WITH_ROWS:
            yield name
        if any(_is_table(module, each) for each in TOKENS) and not {*OTHERS} & {*_names(module)}:
            yield from (f"{name}.{x}".lstrip(".") for x in NAMES if _is_table(module, x))


def _is_table(owner: nn.Module, name: str) -> bool:
    """Return whether a part is a plain `nn.Embedding`, or one that PEFT wraps."""
    part = getattr(owner, name, None)
    for wrapped in ("base_layer", "original_module"):
        part = getattr(part, wrapped, part)
    return isinstance(part, nn.Embedding) and family_of(part) is CALLED_WITH_ROWS


def _names(module: nn.Module) -> Iterator[str]:
    """Yield the names of the classes of `module`, each also with its file."""
    for base in type(module).__mro__:
        yield base.__name__
        yield f"{base.__module__.rpartition('.')[2]}.{base.__name__}"


_RELATIVE = {"alibi": "ALiBi", "rotary": "rotary", "relative_attention_bias": "relative"}
"""Part of a module's or attribute's name, in models whose attention sees distances only."""


def relative_kind(parts: Iterable[object]) -> str | None:
    """Return the relative positions of a model, recognised by names in its modules or
    configuration; None if there are none."""
    everything = list(parts)
    for word, kind in _RELATIVE.items():
        names = ((part, name) for part in everything for name in dir(part) if word in name)
        # A switch may be off, and a module missing, as in ESM with absolute positions.
        values = (getattr(part, name) for part, name in names)
        if any(value is not None and value is not False for value in values):
            return kind
    return None


def text_config(config: Any) -> Any:
    """Return the configuration of the text in one that also has images or sounds; the same if there
    is no other, or several."""
    inner = getattr(config, "get_text_config", None)
    try:
        return inner() if callable(inner) else config
    except ValueError:  # there are several, as in MusicGen
        return config


def special_ids(*configs: Any) -> set[int]:
    """Return the ids of tokens that configurations name."""
    named = [
        value
        for config in configs
        for name, value in getattr(config, "__dict__", {}).items()
        if name.endswith(("token_id", "token_index"))  # LLaVA has an image_token_index
    ]
    return {n for value in named for n in (value if isinstance(value, list | tuple) else [value])}


def has_axes(model: nn.Module) -> bool:
    """Return whether a model rotates by several positions for each token, as Qwen2-VL does: it has
    a method for them, or its configuration names the pairs of each axis."""
    if any(hasattr(part, "get_rope_index") for part in model.modules()):
        return True
    text = text_config(getattr(model, "config", None))
    parameters = (getattr(text, name, None) for name in ("rope_parameters", "rope_scaling"))
    return any("mrope_section" in (each or {}) for each in parameters)
