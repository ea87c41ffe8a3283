"""Write docs/positions.md from the registry.

    python docs/generate_positions.py

What a kind is, where it acts and what it costs stand in the code alone; a test compares the file
with it, and that every kind has a numerical reference.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from shapeshift.export import support
from shapeshift.model import catalogue
from shapeshift.positions import KINDS, POSITION_IDS, PRESETS, Scheme
from shapeshift.positions.registry import Entry
from shapeshift.positions.scheme import PLACES

TARGET = Path(__file__).with_name("positions.md")
ROOT = TARGET.parents[1]

HEAD = """\
# Position representations

<!-- Made by docs/generate_positions.py from the code: change it there. -->
"""

INTRO = """\
A scheme is three independent choices: **position ids** (which number a token gets) × **kind** (what
a position does) × **place** (where it acts). `shapeshift positions NAME` describes one.
[Configuration](configuration.md#position) has every option. Which one to choose:
[Choosing a position representation](guides/choosing.md). In other people's models:
[Hugging Face](guides/hugging-face.md), [torch.nn](guides/torch-nn.md). What they cost in time and
memory: [Benchmarks](benchmarks.md).

```yaml
position: rpe                      # a preset
```

```yaml
position:                          # or the three choices
  position_ids: {name: shifted, max_offset: 100}
  parts:
    - {kind: skew, place: self, layers: 2}
    - {kind: sinusoidal, place: cross, add_to: qk}
```
"""

PROMISES = {
    "shapes and dtypes (fp32, fp64, bf16), nothing given is changed, a bias never holds a mask": (
        "test_hooks.py::test_shapes_and_dtypes"
    ),
    "gradients, float64": "test_hooks.py::test_gradients",
    "decoding step by step = full pass, to four times the length, in chunks, 1e-10": (
        "test_schemes.py::test_incremental_is_full"
    ),
    "beams change places, sentences end": (
        "test_schemes.py::test_beams_are_reordered_and_sentences_left_out"
    ),
    "padding and neighbours change nothing, 1e-10": (
        "test_schemes.py::test_padding_and_neighbours_change_nothing"
    ),
    "training computes nothing for padding; loss and gradients are the same, 1e-10": (
        "test_schemes.py::test_no_layer_computes_padding_and_the_gradients_are_the_same"
    ),
    "shift invariance, where declared; its absence, where not": (
        "test_schemes.py::test_shift_invariance_is_what_is_declared"
    ),
    "bf16 is near fp32": "test_schemes.py::test_bfloat16_stays_close",
    "a saved model gives the same": "test_schemes.py::test_weights_survive_saving_and_loading",
    "gradients of eager attention, in blocks with recomputed scores and by SDPA, 1e-10": (
        "test_schemes.py::test_gradients_do_not_depend_on_how_attention_is_computed"
    ),
    "`torch.compile`: one graph for all lengths, in training too, offsets drawn anew": (
        "test_compile.py"
    ),
    "`torch.export`: dynamic batch and length": "test_export.py",
    "the same translation in any batch": (
        "test_batch_invariance.py::test_bits_do_not_depend_on_the_batch"
    ),
}
"""What holds for every cell → the contract test that proves it."""

COLUMNS = {
    "gradients": "gradients, float64",
    "step = full": "decoding step by step = full pass, to four times the length, in chunks, 1e-10",
    "padding": "padding and neighbours change nothing, 1e-10",
    "bf16": "bf16 is near fp32",
    "state dict": "a saved model gives the same",
    "compile": "`torch.compile`: one graph for all lengths, in training too, offsets drawn anew",
    "export": "`torch.export`: dynamic batch and length",
}
"""Column of the first table → the promise whose test it stands for."""

OVER_CELLS = {"cell", "scheme", "compiled_scheme", "stacked"}
"""The fixtures of the contract tests that run over every kind at every place."""

NUMERICS = {
    "none": "attention",
    "sinusoidal": "sinusoidal",
    "learned": "",
    "rotary": "rotary",
}
"""Kind → the reference, where its name is another or there is nothing to compute."""


def document() -> str:
    """Return the whole page."""
    tables = (*_presets(), *_kinds(), *_cells(), *_exports(), *_position_ids(), *_promises())
    return "\n".join([HEAD, *_overview(), INTRO, *tables])


def _table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    lines = [header, ["---"] * len(header), *rows]
    return [*("| " + " | ".join(line) + " |" for line in lines), ""]


def _overview() -> list[str]:
    cells = {(cell.kind, cell.place): cell for cell in catalogue.cells()}
    checked = [_tick(_runs_over_cells(PROMISES[promise])) for promise in COLUMNS.values()]
    rows = []
    for name, entry in KINDS.items():
        build, first = entry.build, cells[name, entry.build.places[0]]
        rows.append(
            (
                f"`{name}`",
                *(_tick(place in build.places) for place in PLACES),
                _tick(build.shift_invariant),
                f"{catalogue.count_parameters(first):,}",
                *checked,
                entry.source,
            )
        )
    costs = ("shift invariant", "parameters")
    return [*_table(("kind", *PLACES, *costs, *COLUMNS, "source"), rows), _LEGEND]


_LEGEND = """\
`embedding`, `self` and `cross` are the [places](#kinds--places) where a kind may act. *Parameters*
are those that it adds to transformer-base at the first of them. The ticks from *gradients* on are
tests that run for every kind at every place: [which ones](#checked-in-every-cell).
"""


def _tick(holds: bool) -> str:
    return "✓" if holds else "–"


def _runs_over_cells(test: str) -> bool:
    """Return whether a contract test (or one of a file) runs over every kind at every place."""
    file, _, name = test.partition("::")
    source = (ROOT / "tests" / "contract" / file).read_text(encoding="utf-8")
    tests = re.findall(rf"^def {name or 'test_'}\w*\(([^)]*)\)", source, re.MULTILINE)
    return any(set(re.findall(r"\w+", given)) & OVER_CELLS for given in tests)


def _presets() -> list[str]:
    rows = [
        (
            f"`{name}`",
            _numbering(scheme),
            _parts(scheme),
            f"{catalogue.count_parameters(*scheme.parts):,}",
        )
        for name, scheme in PRESETS.items()
    ]
    note = (
        "*Parameters* are those that positions add to transformer-base (6 + 6 layers, D = 512). For"
        " the\ntime of a training step see [Benchmarks](benchmarks.md)."
    )
    header = ("preset", "position ids", "parts", "parameters")
    return ["## Presets", "", *_table(header, rows), note, ""]


def _numbering(scheme: Scheme) -> str:
    options = ", ".join(f"{key}={value}" for key, value in scheme.position_ids.options.items())
    return scheme.position_ids.name + (f" ({options})" if options else "")


def _parts(scheme: Scheme) -> str:
    def name(part) -> str:
        place = part.place or KINDS[part.kind].build.places[0]
        options = [f"{key}={value}" for key, value in part.options.items()]
        limits = [f"first {part.layers} layer"] if part.layers == 1 else []
        limits += [part.stacks] if part.stacks != "both" else []
        said = ", ".join([*limits, *options])
        return f"{part.kind} at {place}" + (f" ({said})" if said else "")

    return " + ".join(map(name, scheme.parts)) or "–"


def _kinds() -> list[str]:
    rows = [
        (
            f"`{name}`",
            entry.summary,
            "decoder" if entry.build.causal_only else "both",
            _reference(name),
        )
        for name, entry in KINDS.items()
    ]
    header = ("kind", "what it does", "stacks", "reference")
    return ["## Kinds", "", *_table(header, rows)]


def _reference(kind: str) -> str:
    name = NUMERICS.get(kind, kind)
    if not name:
        return "– (a look-up)"
    path = f"tests/numerics/test_{name}_reference.py"
    if not (ROOT / path).exists():
        raise FileNotFoundError(f"kind {kind!r} has no numerical reference: write {path}")
    return f"`{path}`"


def _cells() -> list[str]:
    rows = [
        (
            f"`{cell.kind}`",
            cell.place,
            cell.stacks,
            f"{catalogue.count_parameters(cell):,}",
            ", ".join(f"`{target}`" for target in catalogue.EXPORTS),
        )
        for cell in catalogue.cells()
    ]
    header = ("kind", "place", "stacks", "parameters", "exports to")
    return ["## Kinds × places", "", *_table(header, rows), _OTHERWISE]


_OTHERWISE = """\
A row is a *cell*: a kind at a place. Every cell decodes with a cache. `torch.compile` makes one
graph of it for all lengths, also in training, and `torch.export` exports it for any batch and
length in evaluation. A combination that is not in the table is an error when the configuration is
read, and the message says what would work. At an attention, `sinusoidal` and `learned` act on any
subset of the inputs of Q, K and V (`add_to: qk`). `layers: n` limits a part to the first n layers,
`stacks` to encoder or decoder.

Several parts at one place act one after the other. `rotary` and `xpos` rotate the queries, so they
cannot be combined there with a kind that reads queries (`skew`; `shaw` except with
`add_to: values`), nor with each other; nor can `tupe` be used twice. They may be combined across
stacks or places.
"""


def _exports() -> list[str]:
    rows = [(f"`{kind}`", *rest) for kind, *rest in support.table()]
    header = ("kind", "place", *support.ENGINES)
    return ["## Export", "", _EXPORTS, *_table(header, rows)]


_EXPORTS = """\
What `shapeshift export` makes of each cell, with default options and with those that change the
answer; `shapeshift export --list` prints the same.
[Exporting](guides/exporting.md#kind-by-place-by-engine) has the numbers of a comparison by engine.
"""


def _promises() -> list[str]:
    rows = [(promise, f"`{test}`") for promise, test in PROMISES.items()]
    return [_CHECKED, *_table(("promise", "contract test"), rows), _REFERENCES]


_CHECKED = """\
## Checked in every cell

The contract tests run over the registry, so a new kind is tested as soon as it has its line there:
every cell above, every preset, every way of numbering, and variants by options. Compilers need
seconds per model, so `make test` compiles and exports three models, one for each way of numbering,
that have every kind at every place between them; `make test-slow` does it with each cell, preset
and variant separately. Compiled models run on the backends `eager` and, in training, `aot_eager`;
`inductor` runs with SHAPE alone, in `make test-slow`.
"""

_REFERENCES = """\
The column *reference* names the slow float64 computation, written from the paper, that a kind is
compared with. `tests/numerics/test_against_other_libraries.py` compares with other libraries.
"""


def _position_ids() -> list[str]:
    rows = [
        (f"`{name}`", way.summary, _options(way), way.source) for name, way in POSITION_IDS.items()
    ]
    return [
        "## Position ids",
        "",
        *_table(("position ids", "what they are", "options", "source"), rows),
    ]


def _options(entry: Entry) -> str:
    return (
        ", ".join(
            f"`{name}`"
            + ("" if option.default is inspect.Parameter.empty else f" = {option.default}")
            for name, option in entry.options().items()
        )
        or "–"
    )


if __name__ == "__main__":
    TARGET.write_text(document(), encoding="utf-8")
