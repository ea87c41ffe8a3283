"""What can be exported, and the one sentence for what cannot."""

from __future__ import annotations

from pathlib import Path

import pytest

from shapeshift.export.support import VARIANTS, table, unsupported
from shapeshift.model import ModelConfig
from shapeshift.positions import SCHEMES, Part, PositionIds, Scheme

SINUSOIDAL = Part("sinusoidal", "embedding")

REFUSED = {
    "less-feeding": (SCHEMES["less-feeding"], "sinusoidal at self", "sinusoidal at embedding"),
    "cross-pe": (SCHEMES["cross-pe"], "sinusoidal at cross", "sinusoidal at embedding"),
    "xpos": (SCHEMES["xpos"], "compute xpos", "rotary at self"),
    "tupe": (SCHEMES["tupe"], "compute tupe", "learned at embedding"),
    "kerple": (Scheme(parts=(Part("kerple"),)), "compute kerple", "t5 at self"),
    "alibi": (SCHEMES["alibi"], "except in all layers of the decoder", "t5 at self"),
    "alibi, first layer": (
        Scheme(parts=(Part("alibi", "self", "decoder", 1),)), "in all layers", "t5 at self"
    ),
    "alibi, some layers": (
        Scheme(parts=(Part("alibi", "self", "decoder", {"every": 2}),)), "in all layers", "t5 at"
    ),
    "ids that depend on the tokens": (
        Scheme(PositionIds("packed", {"separator": 4}), SCHEMES["ape"].parts),
        "packed position ids, which depend on the tokens", "absolute position ids",
    ),
    "skew": (SCHEMES["skew"], "a table for each head", "per_head: false"),
    "rotary at cross": (Scheme(parts=(Part("rotary", "cross"),)), "at cross", "rotary at self"),
    "released": (
        Scheme(parts=(Part("rotary", options={"rope_parameters": {
            "rope_type": "default", "rope_theta": 1e4}}),)),
        "rotary with rope_parameters", "base and fraction",
    ),
    "YaRN": (Scheme(parts=VARIANTS[-1:]), "compute YaRN", "linear or ntk"),
    "absolute from layer 1 to 2": (
        Scheme(parts=(Part("learned", "self", layers=2),)), "learned at self", "at embedding"
    ),
    "T5 by layer": (
        Scheme(parts=(Part("t5", share_layers=False),)), "for each layer", "share_layers: true"
    ),
    "embedding and self": (
        Scheme(parts=(SINUSOIDAL, Part("shaw"))), "sinusoidal together with shaw", "one of them"
    ),
    "two at self": (Scheme(parts=(Part("shaw"), Part("t5"))), "together with t5", "one of them"),
    "gaps": (
        Scheme(PositionIds("randomized"), (Part("rotary"),)), "randomized", "at embedding"
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_a_refusal_has_a_reason_and_what_works(name):
    scheme, reason, remedy = REFUSED[name]
    said = unsupported(scheme, ModelConfig(size="tiny"))
    assert reason in said
    assert remedy in said.partition("; use ")[2]


def test_the_guide_compares_every_row_of_the_table():
    guide = Path(__file__).parents[3] / "docs" / "guides" / "exporting.md"
    compared = {}
    for line in guide.read_text("utf-8").partition("parity.py writes")[2].splitlines():
        if line.startswith("| `"):
            kind, place, *cells = (cell.strip() for cell in line.strip("|").split("|"))
            compared[kind.strip("`"), place] = [
                "refused" if x == "refused" else "exact" for x in cells
            ]
    expected = {row[:2]: [said.partition(":")[0].split()[0] for said in row[2:]] for row in table()}
    assert {key: compared.get(key) for key in expected} == expected
