"""Write docs/positions.md from the registry.

    python docs/generate_positions.py

What a kind is, where it acts and what it costs stand in the code alone; a test compares the file
with it.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import torch

from shapeshift.attention import BACKENDS, explain
from shapeshift.export import support
from shapeshift.model import catalogue
from shapeshift.positions import KINDS, POSITION_IDS, SCHEMES, Scheme, get
from shapeshift.positions.registry import Entry
from shapeshift.positions.scheme import PLACES

TARGET = Path(__file__).with_name("positions.md")
ROOT = TARGET.parents[1]

HEAD = """\
# Position representations

<!-- Made by docs/generate_positions.py from the code: change it there. -->
"""

INTRO = """\
A scheme combines three independent choices: **position ids** (the number that each token gets) ×
**kind** (what a position does) × **place** (where it acts). `shapeshift positions NAME` describes a
scheme or a kind.

- [Configuration](configuration.md#position) lists every option.
- [Choosing a position representation](guides/choosing.md) helps you to choose one.
- [Hugging Face](guides/hugging-face.md) and [torch.nn](guides/torch-nn.md) explain how to use one
  in other models.
- [Benchmarks](benchmarks.md) show the cost in time and memory.

```yaml
position: rpe                      # a scheme
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
    "shapes and dtypes (fp32, fp64, bf16); arguments do not change; a bias has no mask": (
        "test_hooks.py::test_shapes_and_dtypes"
    ),
    "gradients, float64": "test_hooks.py::test_gradients",
    "decoding in steps or chunks = full pass, up to four times the length, 1e-10": (
        "test_schemes.py::test_incremental_is_full"
    ),
    "beams are reordered, and finished sentences are removed": (
        "test_schemes.py::test_beams_are_reordered_and_sentences_left_out"
    ),
    "padding and other sentences of the batch change nothing, 1e-10": (
        "test_schemes.py::test_padding_and_neighbours_change_nothing"
    ),
    "training skips the computation of padding; loss and gradients are the same, 1e-10": (
        "test_schemes.py::test_no_layer_computes_padding_and_the_gradients_are_the_same"
    ),
    "kinds are shift invariant if and only if they declare it": (
        "test_schemes.py::test_shift_invariance_is_what_is_declared"
    ),
    "bf16 is close to fp32": "test_schemes.py::test_bfloat16_stays_close",
    "a loaded model computes the same": (
        "test_schemes.py::test_a_model_built_without_memory_gets_all_it_needs_from_saved_weights"
    ),
    "gradients by each backend (`reference`, `blocked`, `sdpa`, `cpu`) are the same, 1e-10": (
        "test_schemes.py::test_gradients_do_not_depend_on_how_attention_is_computed"
    ),
    "`torch.compile`: one graph for all lengths, in training too; new offsets per call": (
        "test_compile.py"
    ),
    "`torch.export`: dynamic batch and length": "test_export.py",
    "the translation does not depend on the batch": (
        "test_batch_invariance.py::test_bits_do_not_depend_on_the_batch"
    ),
}
"""What holds for every cell → the contract test that proves it."""

OVER_CELLS = {"cell", "scheme", "compiled_scheme", "stacked"}
"""The fixtures of the contract tests that run over every kind at every place."""


def document() -> str:
    """Return the whole page."""
    first = (*_schemes(), *_kinds(), *_cells(), *_attention(), *_backends(), *_exports())
    tables = (*first, *_position_ids(), *_promises())
    return "\n".join([HEAD, *_overview(), INTRO, *tables])


def _table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    lines = [header, ["---"] * len(header), *rows]
    return [*("| " + " | ".join(line) + " |" for line in lines), ""]


def _overview() -> list[str]:
    cells = {(cell.kind, cell.place): cell for cell in catalogue.cells()}
    rows = []
    for name, entry in KINDS.items():
        build, first = entry.build, cells[name, entry.build.places[0]]
        rows.append(
            (
                f"`{name}`",
                *(_tick(place in build.places) for place in PLACES),
                _tick(build.shift_invariant),
                f"{catalogue.count_parameters(first):,}",
                entry.source,
            )
        )
    return [_LEGEND, *_table(("kind", *PLACES, "shift invariant", "parameters", "source"), rows)]


_LEGEND = """\
`embedding`, `self` and `cross` are the [places](#kinds--places) where a kind may act. *Parameters*
is the number of parameters that the kind adds to transformer-base at the first of its places.
[Tests](#checked-in-every-cell) of gradients, decoding, padding, bf16, compilation and export run
for every kind at every place.
"""


def _tick(holds: bool) -> str:
    return "✓" if holds else "–"


def _runs_over_cells(test: str) -> bool:
    """Return whether a contract test (or one of a file) runs over every kind at every place."""
    file, _, name = test.partition("::")
    source = (ROOT / "tests" / "contract" / file).read_text(encoding="utf-8")
    tests = re.findall(rf"^def {name or 'test_'}\w*\(([^)]*)\)", source, re.MULTILINE)
    return any(set(re.findall(r"\w+", given)) & OVER_CELLS for given in tests)


def _schemes() -> list[str]:
    rows = [
        (
            f"`{name}`",
            _numbering(scheme),
            _parts(scheme),
            f"{catalogue.count_parameters(*scheme.parts):,}",
        )
        for name, scheme in SCHEMES.items()
    ]
    note = (
        "*Parameters* is the number that positions add to transformer-base (6 + 6 layers, D = 512)."
        "\n[Benchmarks](benchmarks.md) show the time of a training step."
    )
    header = ("scheme", "position ids", "parts", "parameters")
    return ["## Schemes", "", *_table(header, rows), note, ""]


def _numbering(scheme: Scheme) -> str:
    options = ", ".join(f"{key}={value}" for key, value in scheme.position_ids.options.items())
    return scheme.position_ids.name + (f" ({options})" if options else "")


def _parts(scheme: Scheme) -> str:
    return " + ".join(map(str, scheme.parts)) or "–"


def _kinds() -> list[str]:
    rows = [
        (
            f"`{name}`",
            entry.summary,
            "decoder" if entry.build.causal_only else "both",
        )
        for name, entry in KINDS.items()
    ]
    header = ("kind", "what it does", "stacks")
    return ["## Kinds", "", *_table(header, rows), _AXES]


_AXES = """\
`axial`, and `rotary` with `sections`, take
[positions with several axes](guides/choosing.md#positions-with-axes), such as the row and the
column in an image. They are for models of your own.
"""


def _cells() -> list[str]:
    rows = [
        (
            f"`{cell.kind}`",
            cell.place,
            cell.stacks,
            f"{catalogue.count_parameters(cell):,}",
        )
        for cell in catalogue.cells()
    ]
    header = ("kind", "place", "stacks", "parameters")
    return ["## Kinds × places", "", *_table(header, rows), _OTHERWISE]


_OTHERWISE = """\
Each row is a *cell*: a kind at a place. Every cell can decode with a cache. `torch.compile` makes
one graph for all lengths, also in training, and `torch.export` exports a cell for any batch size
and length in evaluation. If a configuration has a combination that is not in the table, the error
says what would work. In attention, `sinusoidal` and `learned` act on any subset of the inputs of Q,
K and V (`add_to: qk`). `stacks` limits a part to the encoder or the decoder, and `layers` to some
layers, counted from 0:

| `layers` | acts in layers |
| --- | --- |
| `2` | 0 and 1: the first two |
| `[0, 2, 5]` | 0, 2 and 5 |
| `{every: 4, offset: 3}` | 3, 7, 11, … |
| `{except: {every: 4, offset: 3}}` | all but 3, 7, 11, … |

So a model whose every fourth layer has no position and whose other layers are rotary, as in SmolLM3
and Llama 4, is one part (each stack needs 4 layers or more):

```yaml
position:
  parts: [{kind: rotary, layers: {except: {every: 4, offset: 3}}}]
```

Several parts at one place act one after the other. `rotary`, `xpos` and `pope` change the queries
by position, so they cannot be combined at one place with a kind that reads queries (`skew`,
`transformer-xl`, `deberta`, `cope` and `path`; `shaw` except with `add_to: values`) or with each
other. `tupe` cannot be used twice at one place, nor two of `fox`, `path` and `inkling`. All of
these can be combined across stacks or places.
"""


ATTENTIONS: dict[str, dict[str, Any]] = {
    "CPU, fp32, training": {"train": True, "with_kernels": True},
    "CPU, bf16, training": {"train": True, "with_kernels": True, "dtype": torch.bfloat16},
    "CPU, training, no compiled kernels": {"train": True, "with_kernels": False},
    "GPU, bf16, training": {"train": True, "device": "cuda", "dtype": torch.bfloat16},
    "GPU, bf16, decoding": {"decode": True, "device": "cuda", "dtype": torch.bfloat16},
    "GPU, bf16, training, `torch.compile`": {
        "train": True,
        "device": "cuda",
        "dtype": torch.bfloat16,
        "compiled": True,
    },
}
"""Column → options of `shapeshift.attention.example`. Nothing is asked of this machine."""

LENGTHS = 64, 2048


def _attention() -> list[str]:
    rows = [
        (f"`{name}`", *(_served(name, options) for options in ATTENTIONS.values()))
        for name, entry in KINDS.items()
        if {"self", "cross"} & {*entry.build.places}
    ]
    header = ("kind", *ATTENTIONS)
    return ["## What computes attention", "", _ATTENTION, *_table(header, rows)]


def _served(kind: str, options: dict[str, Any]) -> str:
    """Return the backend for short sentences, and for long ones where it is another."""
    position = get(kind, dim=512, num_heads=8, head_dim=64)
    served = [explain(position, length=length, **options).backend for length in LENGTHS]
    return ", ".join(f"`{name}`" for name in dict.fromkeys(served))


_ATTENTION = f"""\
The first [backend](#backends) that does not refuse computes an attention:
`shapeshift positions NAME --explain` prints it for other settings, with the reasons. This table is
for self-attention of {LENGTHS[0]} tokens, without dropout of attention; where two backends stand,
the second one computes {LENGTHS[1]:,} tokens. *GPU* is one of NVIDIA's from Ampere on.
"""


def _backends() -> list[str]:
    rows = []
    for name, module in BACKENDS.items():
        said = " ".join((inspect.getdoc(module) or "").split())
        said = said.removeprefix(f"The backend `{name}`").lstrip(":, ")
        sentence = re.split(r"(?<=\.) (?=[A-Z])", said)[0].rstrip(".")
        rows.append((f"`{name}`", sentence))
    return ["## Backends", "", _BACKENDS, *_table(("backend", "what it is"), rows)]


_BACKENDS = """\
In the order in which they are asked. [How attention runs](how-attention-runs.md) follows a kind
through the code.
"""


def _exports() -> list[str]:
    rows = [(f"`{kind}`", *rest) for kind, *rest in support.table()]
    header = ("kind", "place", *support.ENGINES)
    return ["## Export", "", _EXPORTS, *_table(header, rows)]


_EXPORTS = """\
The table shows which cells `shapeshift export` can export, with default options and with options
that change the answer; `shapeshift export --list` prints the same table.
[Exporting](guides/exporting.md#kind-by-place-by-engine) has the numbers of a comparison by engine.
"""


def _promises() -> list[str]:
    rows = [
        (promise, _tick(_runs_over_cells(test)), f"`{test}`") for promise, test in PROMISES.items()
    ]
    return [_CHECKED, *_table(("promise", "every cell", "contract test"), rows), _REFERENCES]


_CHECKED = """\
## Checked in every cell

The contract tests run over the registry, so a new kind is tested as soon as it is registered. They
test every cell above, every scheme, every choice of position ids, and variants with other options.
Compiling takes seconds per model, so `make test-long` compiles and exports only a few models, which
together have every kind at every place, and trains one of them. `make test-slow` does both with all
of these and with each cell, scheme and variant separately. Compiled models run on the backends
`eager` and, in training, `aot_eager`; `inductor` runs only with SHAPE, in `make test-slow`.
"""

_REFERENCES = """\
`tests/numerics/test_references.py` compares every kind with a slow float64 implementation, written
from the paper. `tests/numerics/test_against_other_libraries.py` compares kinds with other
libraries.
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
