"""What a model does with positions, layer by layer, and what its configuration says."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from typing import Any

import torch
from torch import Tensor, nn

from shapeshift._system.errors import ShapeshiftError
from shapeshift.interop.families import CALLED_WITH_ROWS, family_of, text_config

from .adapter import Subject, UnsupportedError, subjects
from .comparison import Comparison, Reading, grouped
from .images import read_image_positions
from .probe import in_double
from .rotary import read_rotations
from .scores import read_scores


def declared(model: nn.Module, config: Any = None) -> list[Reading]:
    """Measure what a model does with positions, and compare it with its configuration.

        for reading in declared(AutoModelForCausalLM.from_pretrained("gpt2")):
            print(reading.property, reading.layers, reading.measured, reading.outcome)

    A copy of the model runs on the CPU, in float64 if it can, with rows of one repeated token, of
    which only positions differ. Queries and keys are recorded where PyTorch multiplies them, scores
    and masks where they reach a softmax, and no token attends to another one. θ comes from the
    angles at positions 1, 2, 4, 8, …, the attention factor from a second pass in which the rotary
    embeddings rotate by zero. Beyond position 8,191, and beyond the model's own limit, nothing is
    measured.

    The declared rotation is that of `Rotary.from_config`.

    Args:
        model: as for `check`.
        config: a configuration of transformers or its dictionary; by default that of the model.
            A model without one is measured only.

    Returns:
        Readings; layers with the same result share one.

    Raises:
        ShapeshiftError: as for `check`.
    """
    given = getattr(model, "config", None) if config is None else config
    if not (given is None or isinstance(given, Mapping) or hasattr(given, "to_dict")):
        raise ShapeshiftError(
            "config must be a configuration of transformers or its dictionary, got"
            f" {type(given).__name__}"
        )
    given = text_config(given)
    given = given.get("text_config", given) if isinstance(given, Mapping) else given
    with torch.inference_mode():
        sides = [read(in_double(subject), given) for subject in subjects(model)]
    return grouped([reading for side in sides for reading in side])


def read(subject: Subject, config: Any, num_tokens: int = 70) -> list[Reading]:
    """Return readings of each layer of one side; the arguments are those of `Comparison`."""
    found: list[Reading] = []
    why = "neither its attention nor a known table is reached"
    try:
        it = Comparison(subject, config, num_tokens)
        found.extend(read_rotations(it))
        rotates = any(reading.property.startswith("θ") for reading in found)
        if it.side != subject.side and _is_causal(it):
            found.append(it.agree("mask", None, "tokens see later ones", "causal", False))
        found.extend(read_scores(it, rotates))
        found.extend(_read_tables(it))
        found.extend(read_image_positions(it))
    except UnsupportedError as error:  # the model fails for such an input
        why = str(error)
    return found or [Reading("positions", subject.side, (), why, "", "not measured")]


def _is_causal(it: Comparison) -> bool:
    """Return whether the class and the configuration say that no token sees later ones."""
    switches = it.given.get("is_decoder", True), it.given.get("is_causal", True)
    is_causal = all(switches) and not it.given.get("use_bidirectional_attention")
    return is_causal and type(it.model).__name__.endswith("ForCausalLM")


def _read_tables(it: Comparison) -> Iterator[Reading]:
    """Yield the row of the first token of each table of positions of this side."""
    rows: dict[nn.Module, Tensor] = {}
    tables = it.tables
    if it.subject.is_seq2seq:
        is_encoder = it.subject.side == "encoder"
        tables = [name for name in tables if ("encoder" in name.split(".")) == is_encoder]
    if not tables:
        return
    parts = {name: it.model.get_submodule(name) for name in tables}

    def see(part: nn.Module, args: Any, out: Tensor) -> None:
        rows.setdefault(part, out.reshape(-1, out.shape[-1])[0])

    with ExitStack() as hooks:
        for part in parts.values():
            hooks.enter_context(part.register_forward_hook(see))
        it.watch(torch.arange(2), 1, with_ids=False)
    for name, part in parts.items():
        family, what = family_of(part), f"row of the first token, {name}"
        table = family.table_of(part)
        if part not in rows or table is None:
            why = "no table is read" if part in rows else "it is not used"
            yield it.reading(what, None, why, "", "not measured")
            continue
        off = (table.double() - rows[part].double()).abs().amax(1)
        row = str(int(off.argmin())) if off.min() < 1e-6 else "none of the table's"
        first = family.first(part)
        if family is CALLED_WITH_ROWS and not first:  # YOSO has two rows more than positions
            first = max(0, len(table) - (it.subject.limit or len(table)))
        yield it.agree(what, None, row, str(first), row == str(first))
