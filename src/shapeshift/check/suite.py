"""Which properties hold in a model, and the smallest inputs for which they do not."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

import torch
from torch import nn

from shapeshift.positions.checks import whole_number

from . import properties
from .adapter import Claim, UnsupportedError, subjects
from .probe import LENGTHS, Case, Probe, line

Property = Callable[[Probe, int], Iterator[Case]]

PROPERTIES: dict[str, Property] = {
    "repeatable": properties.repeatable,
    "cached = full": properties.cached,
    "left padding": properties.left_padding,
    "right padding": properties.right_padding,
    "packing": properties.packing,
    "batch-mates": properties.batch_mates,
    "bfloat16": properties.bfloat16,
    "shift": properties.shift,
    "beyond the end": properties.beyond,
    "effect": properties.effect,
}
"""Name → the function that tests it, in the order of the report."""


@dataclass(frozen=True)
class Finding:
    """The result of one property.

    Attributes:
        property: its name.
        side: `decoder` or `encoder`.
        outcome: `pass`, `FAIL` or `not applicable`.
        detail: the case that came closest to a failure, the smallest failing one, or the reason.
        ids: of the smallest failing case, one tuple for each row.
    """

    property: str
    side: str
    outcome: Literal["pass", "FAIL", "not applicable"]
    detail: str
    ids: tuple[tuple[int, ...], ...] = ()


def check(
    model: nn.Module,
    *,
    positions: Claim | None = None,
    max_length: int = LENGTHS[-1],
) -> list[Finding]:
    """Check the positions of a model: one finding for each property and side.

        for finding in check(AutoModelForCausalLM.from_pretrained("gpt2")):
            print(finding.property, finding.outcome, finding.detail)

    Copies of the model run on the CPU in evaluation mode, in float64 if the model can and has fewer
    than 200 million parameters, else in float32. The size of the vocabulary and the number of
    positions are those of its `config`, or its attributes `vocab_size` and `max_length`.

    Models of Hugging Face get positions as its documentation says: with an `attention_mask`, and
    `position_ids` counted from it where the model takes them, as `generate` does. `forward` of any
    other takes ids first, and optionally `attention_mask`, `position_ids`, `past_key_values` with
    `use_cache`, and `decoder_input_ids` with `decoder_attention_mask`. It returns logits, a tuple
    of logits and the cache, or an object with `logits` and `past_key_values`.

    Args:
        model: of Hugging Face, of `shapeshift.model`, or a module that is called as above.
        positions: what it claims: `absolute`, `relative` (adding a number to all positions changes
            nothing) or `none`. By default, what its modules say.
        max_length: the longest sequence to try, except for the limit itself; 4 or more.

    Raises:
        ShapeshiftError: it is no module, cannot be called with ids alone, has fewer than 5
            positions or 2 tokens that are not special, or the size of its vocabulary is not known;
            `max_length` is below 4.
    """
    whole_number("max_length", max_length, 4)
    findings: list[Finding] = []
    with torch.inference_mode():
        for side in subjects(model, positions):
            probe = Probe(side, max_length)
            for name, test in PROPERTIES.items():
                finding = _examine(name, test, probe)
                findings.append(finding)
                if name == "repeatable" and finding.outcome == "FAIL":
                    break  # all others would fail as well
    return findings


def _examine(name: str, test: Property, probe: Probe) -> Finding:
    """Try lengths from short to long; a failure is repeated at all lengths that were left out."""
    side, passed, cases = probe.subject.side, 1, []
    length = 0
    try:
        for length in probe.lengths:
            for case in test(probe, length):
                if case.fails:
                    between = (x for n in range(passed + 1, length) for x in test(probe, n))
                    smallest = next((x for x in between if x.fails), case)
                    ids = tuple(tuple(row) for row in smallest.ids.tolist())
                    return Finding(name, side, "FAIL", str(smallest), ids)
                cases.append(case)
            passed = length
    except UnsupportedError as reason:
        return Finding(name, side, "not applicable", str(reason))
    except properties.RefusedError as error:
        return Finding(name, side, "pass", f"refused: {error}")
    except Exception as error:
        return Finding(name, side, "FAIL", f"{length} tokens: {line(error)}")
    if not cases:
        return Finding(name, side, "not applicable", "there is no room for such an input")
    return Finding(name, side, "pass", str(max(cases, key=lambda case: case.margin)))
