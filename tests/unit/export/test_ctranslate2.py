"""Exported models compute what ours do; broken exports, and models without positions, are found."""

from __future__ import annotations

import sys
from dataclasses import replace

import pytest
import torch

from shapeshift._system.errors import ShapeshiftError
from shapeshift.data.subwords import BOS, EOS
from shapeshift.decoding.capacity import Capacity
from shapeshift.export import ctranslate2 as export_module
from shapeshift.export import parity
from shapeshift.export.ctranslate2 import export
from shapeshift.export.support import VARIANTS, support
from shapeshift.model.catalogue import cells
from shapeshift.positions import KINDS, SCHEMES, Part, PositionIds, Representation, Scheme
from shapeshift.positions.pairs import Table
from shapeshift.positions.registry import Entry

ctranslate2 = pytest.importorskip("ctranslate2", reason="the extra ctranslate2 is not installed")

LENGTHS = [(1, 9), (3, 1), (17, 18), (18, 17), (60, 45)]


def at_self(kind, stacks="both", layers=None, share_layers=None, **options):
    return Scheme(
        parts=(Part(kind, "self", stacks, layers, options=options, share_layers=share_layers),)
    )


CASES = {
    "shape": SCHEMES["shape"],
    "learned": Scheme(parts=(Part("learned", "embedding", options={"num_positions": 70}),)),
    "authors' offset": Scheme(
        PositionIds("shifted", {"max_offset": 50, "authors": True}), SCHEMES["ape"].parts
    ),
    "randomized": SCHEMES["randomized"],
    "tied tables": at_self("shaw", share_tables=True, max_distance=3),
    "keys": at_self("shaw", add_to="keys", max_distance=3),
    "values": at_self("shaw", add_to="values", max_distance=3),
    "first layer": at_self("shaw", layers=1),
    "encoder": at_self("shaw", "encoder"),
    "not in the first layer": at_self("shaw", layers=[1]),
    "T5, not in the first layer": at_self("t5", layers=[1], num_buckets=8, max_distance=10),
    "rotary, not in the first layer": at_self("rotary", layers={"every": 2, "offset": 1}),
    "rotary in the first layer": at_self("rotary", layers={"except": {"every": 2, "offset": 1}}),
    "T5, first layer": at_self("t5", layers=1, num_buckets=8, max_distance=10),
    "halves": at_self("rotary", pairs="halves", fraction=0.5),
    "linear": at_self("rotary", scaling="linear", factor=2.0, base=500.0),
    "NTK": at_self("rotary", scaling="ntk", factor=2.0, fraction=0.5),
    "two kinds": Scheme(
        parts=(Part("sinusoidal", "embedding", "encoder"), Part("t5", "self", "decoder"))
    ),
    **{str(part): Scheme(parts=(part,)) for part in (*cells(), *VARIANTS)},
}
"""Every cell, and what else changes an export."""


SHAPES = [
    ("ape", {"norm": "post"}),
    ("rpe", {"activation": "gelu", "tie_output": False}),
    ("t5", {"activation": "silu", "output_bias": True}),
    ("rpe", {"norm": "post", "num_heads": 1, "encoder_layers": 3, "decoder_layers": 1}),
    ("rpe", {"share_embeddings": False}),
]


def log_probs(model, source, target):
    """log p of each target id and `</s>`, one sentence at a time, by a full forward pass."""
    with torch.no_grad():
        hidden = model(torch.tensor([[*source, EOS]]), torch.tensor([[BOS, *target]]))
        rows = model.project(hidden)[0].log_softmax(-1)
    return rows[range(len(rows)), [*target, EOS]]


def check(made, folder):
    """Compare a folder with a model, through CTranslate2's own interface."""
    generator = torch.Generator().manual_seed(5)
    sizes = made.subwords.source_size, made.subwords.target_size
    pairs = [
        [
            torch.randint(5, size, (n,), generator=generator).tolist()
            for size, n in zip(sizes, pair, strict=True)
        ]
        for pair in LENGTHS
    ]
    sources = [made.subwords.source_pieces(source) for source, _ in pairs]
    targets = [made.subwords.target_pieces(target) for _, target in pairs]
    results = ctranslate2.Translator(str(folder), device="cpu").score_batch(sources, targets)
    for (source, target), result in zip(pairs, results, strict=True):
        expected = log_probs(made.model, source, target)
        torch.testing.assert_close(torch.tensor(result.log_probs), expected, rtol=0, atol=1e-4)


def run(made, target, **options):
    return export(made.trained, target, **options)


@pytest.mark.parametrize("name", CASES)
def test_positions_are_the_same_or_refused(name, make, tmp_path):
    made = make(CASES[name])
    if support(CASES[name], made.shape).startswith("refused"):
        with pytest.raises(ShapeshiftError, match="cannot be exported exactly"):
            run(made, tmp_path / "model")
        return
    report = run(made, tmp_path / "model")
    check(made, tmp_path / "model")
    acting = {part.stacks for part in CASES[name].parts if part.kind != "none"}
    both = {"encoder", "decoder"}
    assert set(report.parity.effects) == (both if acting - both else acting)
    assert all(effect > 1e-3 for effect in report.parity.effects.values())


class Root(Representation):
    """A bias by distance, clipped at other distances to the left than to the right."""

    places = ("self",)
    limits = (-7, 3)

    def __init__(self, *, num_heads):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(num_heads, 2))

    def distance_bias(self, distances, dtype):
        weight = self.weight.to(dtype).view(2, -1, *[1] * distances.ndim)
        return torch.where(distances < 0, weight[0], weight[1]) * distances.abs().sqrt()


class Fixed(Representation):
    """Nothing is trained, all heads have one bias, and only the next token to the left counts."""

    places = ("self",)
    limits = (-1, 0)

    def distance_bias(self, distances, dtype):
        return (4 * (distances == -1)).to(dtype)[None]


class Asymmetric(Representation):
    """Vectors of the distances −3 … 1 for keys, and −1 … 4 for values."""

    places = ("self",)

    def __init__(self, *, head_dim):
        super().__init__()
        self.keys = torch.nn.Parameter(torch.randn(1, 5, head_dim))
        self.values = torch.nn.Parameter(torch.randn(1, 6, head_dim))

    def distance_vectors(self):
        return Table(self.keys, -3), Table(self.values, -1)


@pytest.mark.parametrize("stacks", ["both", "encoder", "decoder"])
@pytest.mark.parametrize(("kind", "shared"), [(Root, True), (Fixed, None), (Asymmetric, None)])
def test_a_kind_of_ones_own_that_is_described_by_distance_is_the_same(
    kind, shared, stacks, make, tmp_path, monkeypatch
):
    monkeypatch.setitem(KINDS, "mine", Entry(kind, "", ""))
    made = make(at_self("mine", stacks, share_layers=shared))
    report = run(made, tmp_path / "model")
    check(made, tmp_path / "model")
    assert report.positions == "exact after rewriting"
    stacks = {"encoder", "decoder"} if stacks == "both" else {stacks}
    assert all(effect > 1e-3 for effect in report.parity.effects.values())
    assert set(report.parity.effects) == stacks
    # The distance from which on nothing changes is among those that are compared.
    end = {Root: 7, Fixed: 1, Asymmetric: 4}[kind]
    assert {end, end + 1} <= {source for source, _ in report.parity.lengths}


@pytest.mark.parametrize(
    ("change", "share_layers", "reason"),
    [
        ({"limits": None}, True, "compute mine, which has no limits; use t5 at self"),
        ({"query_bias": lambda self, q, pos_q, pos_k: None}, True, "compute mine; use "),
        ({"bias": lambda self, *args, **rest: None}, True, "compute mine; use "),
        ({}, None, r"mine with a bias for each layer.*share_layers: true"),
    ],
)
def test_what_is_not_described_by_distance_alone_is_refused(
    change, share_layers, reason, make, tmp_path, monkeypatch
):
    kind = type("Mine", (Root,), {**change, "shift_invariant": True})
    monkeypatch.setitem(KINDS, "mine", Entry(kind, "", ""))
    with pytest.raises(ShapeshiftError, match=reason):
        run(make(at_self("mine", share_layers=share_layers)), tmp_path / "model")


@pytest.mark.parametrize("kind", ["t5", "rotary"])
def test_positions_without_a_table_do_not_end(kind, make, tmp_path):
    made = make(at_self(kind))
    with pytest.raises(ShapeshiftError, match="no effect on this model: it has no such limit"):
        run(made, tmp_path / "model", max_length=20)
    run(made, tmp_path / "model")
    check(made, tmp_path / "model")  # of up to 60 tokens


@pytest.mark.parametrize(("scheme", "shape"), SHAPES, ids=str)
def test_models_of_other_shapes_are_the_same(scheme, shape, make, data, apart, tmp_path):
    subwords = (data if shape.get("share_embeddings", True) else apart).subwords
    made = make(SCHEMES[scheme], subwords, **shape)
    run(made, tmp_path / "model")
    check(made, tmp_path / "model")


def test_lengths_are_those_at_which_positions_may_go_wrong(make, tmp_path):
    lengths = run(make(SCHEMES["rpe"]), tmp_path / "a").parity.lengths
    assert {source for source, _ in lengths} >= {1, 16, 17, 30, 38}
    assert {target for _, target in lengths} >= {1, 16, 17, 25, 33}
    trained = replace(make(CASES["learned"]).trained, longest=(66, 80))
    with pytest.raises(ShapeshiftError, match="no effect on this model: it takes 70 tokens at"):
        export(trained, tmp_path / "b", max_length=100)
    lengths = export(trained, tmp_path / "b").parity.lengths
    assert max(max(pair) for pair in lengths) == 69  # and `</s>`: the table ends


def test_every_step_of_the_search_is_compared(make, tmp_path):
    made = make(SCHEMES["ape"])
    with torch.no_grad():
        made.model.output.weight[EOS] *= 4  # else a random model hardly ever ends
    run(made, tmp_path / "model")
    cpu = torch.device("cpu")
    engine = export_module.CTranslate2Model(tmp_path / "model", made.subwords, Capacity(), cpu)
    sources = [[n] * length for n in range(5, 25) for length in (1, 4)]
    own = parity.OwnEngine(made.model)
    found, expected = engine.search(sources, 6), own.search(sources, 6)
    assert [ids for ids, _ in found] == [ids for ids, _ in expected]
    assert {len(ids) for ids, _ in found} == {6}  # though the model would end most of them
    assert max(abs(a - b) for (_, a), (_, b) in zip(found, expected, strict=True)) < 1e-4


def roll(name):
    def change(spec):
        table = getattr(spec, name).position_encodings.encodings
        table.copy_(table.roll(1, 0))

    return change


@pytest.mark.parametrize(
    ("scheme", "change"),
    [
        ("ape", roll("encoder")),
        ("ape", roll("decoder")),
        ("rpe", lambda spec: setattr(spec.config, "layer_norm_epsilon", 0.5)),
    ],
)
def test_a_broken_conversion_is_found(scheme, change, make, tmp_path, monkeypatch):
    convert = export_module.convert

    def broken(*args):
        change(spec := convert(*args))
        return spec

    monkeypatch.setattr(export_module, "convert", broken)
    with pytest.raises(ShapeshiftError, match="does not compute what the trained one does"):
        run(make(SCHEMES[scheme]), tmp_path / "model")
    assert list(tmp_path.iterdir()) == []


def test_positions_that_change_nothing_are_found(make, tmp_path):
    made = make(CASES["learned"])
    torch.nn.init.zeros_(made.model.target.position.weight)
    with pytest.raises(ShapeshiftError, match="positions of the decoder change no log-probability"):
        run(made, tmp_path / "model")


def test_quantized_weights_are_smaller_and_the_model_stays_as_it_is(make, tmp_path):
    made = make(SCHEMES["rpe"])
    before = {name: weight.clone() for name, weight in made.model.state_dict().items()}
    exact = run(made, tmp_path / "exact")
    small = run(made, tmp_path / "small", quantization="int8")
    for name, weight in made.model.state_dict().items():
        assert torch.equal(weight, before[name])
    assert small.parity == exact.parity
    sizes = [(tmp_path / name / "model.bin").stat().st_size for name in ("exact", "small")]
    assert sizes[1] < sizes[0] / 2


def test_without_ctranslate2_the_extra_is_named(make, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "ctranslate2", None)
    with pytest.raises(ShapeshiftError, match=r"pip install '\.\[ctranslate2\]'"):
        run(make(SCHEMES["ape"]), tmp_path / "model")
