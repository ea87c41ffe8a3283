"""Write docs/configuration.md and docs/study.md from the models that check these files.

    python docs/generate_configuration.py

Types, limits, defaults and meanings stand in the code alone; tests compare the pages with it.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from shapeshift.config import Config
from shapeshift.data.config import CORPORA
from shapeshift.model import SIZES
from shapeshift.positions import KINDS, POSITION_IDS, SCHEMES
from shapeshift.positions.registry import Entry
from shapeshift.run.measures import MEASURES, TRAIN, Metric, find_measure
from shapeshift.study.check import FACTS
from shapeshift.study.grid import GridConfig, Profile, Rule
from shapeshift.study.spec import (
    ByLengthSpec,
    ClaimSpec,
    ColumnSpec,
    CurvesSpec,
    PlotSpec,
    PublishedSpec,
    StudySpec,
    TableSpec,
)

INTRO = """\
# Configuration

<!-- Made by docs/generate_configuration.py from the code: change it there. -->

One YAML file describes a run. Every key has a default. Unknown keys, wrong types and values out of
range are all reported at once, before anything starts.

```
shapeshift train multi30k training.max_updates=5000 position=shape
```

- Name the file by its path, or, if it comes with the package, by its name: `multi30k`, `short`,
  `shape-paper`, … (the folder `config/shipped` of the package).
- `section.key=value` after the file replaces a setting. The value is YAML: `null`, `[10, 20]`, or
  `{...}` for several keys of a section. [Overrides](#overrides) has the rules.
- `extends: other.yaml` at the top of a file starts from another file, or from a shipped
  configuration (`extends: multi30k`).
- A relative path in a file starts in the folder of that file, and a path on the command line in the
  working directory. This holds for every path: `extends`, the `base` of a study, `data.corpus.root`
  (by default the folder of the file that gives the corpus), `data.subwords.models`,
  `training.init_from`, and, where there is such a file, `data.corpus.repo` and
  `evaluation.comet_model`. In a shipped configuration, paths start in the working directory.
- A plain name stands for the choice of a section: `model=tiny`, `position=shape`,
  `data.corpus=wmt14-en-de`, `data.recipe=extrapolate`, `training.optimizer=adamw`,
  `training.schedule=cosine`, `decoding.length_penalty=gnmt`.
- `shapeshift train CONFIG --dry-run` checks all settings, measures a few steps, and prints
  parameters, time and disk space. It needs no data.
- `yes`, `no`, `on` and `off` are text; only `true` and `false` are true and false.
- All settings of a run, with defaults, are saved in its folder as `config.yaml`. Change them on the
  command line, not in that file: its hash is in `SHA256SUMS`, and an edited file is refused.

## Overrides

Settings are laid over each other from left to right: the file at the bottom of `extends`, each file
that extends it, in a study the overrides of the profile, of the axes and of the rules, and last the
command line. Each of these is a *layer*. A later layer replaces values and lists of earlier ones,
and sections are merged key by key. The name of a scheme or of a corpus replaces the whole section
by what it stands for. Another choice in a section (a schedule, a recipe) keeps the fields that both
have; a field that the new choice does not have is an error, and `null` removes it:
`training.schedule=noam training.schedule.peak=null`. The options of position ids and of a part are
not removed this way: name the scheme again, or give all parts. Within one layer, an override that
would undo an earlier one is an error that names both: a key given twice,
`position.position_ids.max_offset=40 position=shape` (give `position=shape` first), or `model.dim=96
model=base`. `model.size` fills in widths and depths that nothing else gives; a layer with another
size must also give each of them that an earlier layer gives. In a file, the choice of a section
counts before its fields, wherever it stands. Otherwise the order within a layer has no effect.
"""

STUDY_INTRO = """\
# A study file

<!-- Made by docs/generate_configuration.py from the code: change it there. -->

A study file defines the runs, the tables and figures that are made from them, and the claims to
test. [Your own study](tutorials/own-study.md) explains an example step by step.
`shapeshift reproduce FILE --dry-run` checks every name in the file. The studies of the papers are
study files, too.

An *axis* is a name in `grid.axes`, and a *setting* is a name below an axis. Unless stated
otherwise, a `mapping` maps an axis to a setting.
[How verdicts are formed](reproducing.md#how-verdicts-are-formed) explains the rules of claims.
"""

STUDY_PARTS: dict[str, tuple[str, type[BaseModel]]] = {
    "Top level": ("", StudySpec),
    "`grid`": ("", GridConfig),
    "`grid.profiles.NAME`": ("", Profile),
    "`grid.rules`": ("A list. Each entry: ", Rule),
    "`tables`": ("A list. Each entry: ", TableSpec),
    "`tables.columns.TITLE`": ("", ColumnSpec),
    "`tables.plot`": ("", PlotSpec),
    "`tables.published`": ("", PublishedSpec),
    "`by_length`": ("A list. Each entry: ", ByLengthSpec),
    "`curves`": ("", CurvesSpec),
    "`claims`": ("A list. Each entry: ", ClaimSpec),
}

LIMITS = {"ge": "≥ ", "gt": "> ", "le": "≤ ", "lt": "< ", "min_length": "length ≥ "}


def document() -> str:
    """Return the whole page."""
    parts = [INTRO]
    for name, field in Config.model_fields.items():
        parts += _position() if name == "position" else _section(name, field.annotation)
        if name == "model":
            parts.append(_sizes())
    return "\n".join(parts)


def study_document() -> str:
    """Return the whole page of a study's file."""
    parts = [STUDY_INTRO]
    for title, (start, model) in STUDY_PARTS.items():
        parts.append(f"## {title}\n\n{start}{_summary(model)}\n")
        parts.append(_fields(model, list(model.model_fields)))
    measures = ", ".join(f"`{name}`" for name in MEASURES)
    parts = [part.replace("`MEASURES`", measures) for part in parts]
    parts.append(
        "## Metrics\n\nThe values of `metric`. Your own measures declare others: see"
        "\n[a measure of your own](tutorials/own-study.md#a-measure-of-your-own). `score-SPLIT` is"
        "\n`score-valid` or `score-test`, and `evaluation.metrics` has to name the score."
        "\nDifferences of a metric that keeps examples are tested by the paired bootstrap,"
        "\nthose of others over seeds alone.\n"
    )
    makers: dict[str, dict[str, Metric]] = {}
    for measure in (TRAIN, *MEASURES):
        for metric in find_measure(measure).metrics:
            place = "score-SPLIT" if measure.startswith("score-") else measure
            makers.setdefault(metric.name, {}).setdefault(place, metric)
    rows = [(f"`{name}`", *_metric(found)) for name, found in makers.items()]
    rows += [(f"`{name}`", meaning, "", "", "") for name, meaning in FACTS.items()]
    parts.append(_table(("metric", "what it is", "better", "examples", "measure"), rows))
    return "\n".join(parts)


def _metric(found: dict[str, Metric]) -> tuple[str, ...]:
    """Return what a metric is, which values are better, what it keeps, and what makes it."""
    metric = found.get("score-SPLIT") or next(iter(found.values()))
    part = f"; has a `bucket`, such as `{metric.buckets[0]}`" if metric.buckets else ""
    score = f" (`{metric.setting}`)" if metric.setting else ""
    measures = " or ".join(f"`{name}`" for name in found if name != TRAIN)
    return metric.meaning + score + part, metric.better or "", metric.examples or "", measures


def _section(name: str, annotation: Any) -> Iterator[str]:
    """Yield a section's text, its table, and its subsections."""
    (model,) = _models(annotation)
    below = {key: _models(f.annotation) for key, f in model.model_fields.items()}
    yield f"{'#' * (2 + name.count('.'))} `{name}`\n\n{_summary(model)}\n"
    if plain := [key for key in below if not below[key]]:
        yield _fields(model, plain)
    for key, models in below.items():
        if len(models) == 1:
            yield from _section(f"{name}.{key}", models[0])
        elif models:
            yield _alternatives(f"{name}.{key}", models, model.model_fields[key])
            if key == "corpus":
                yield _corpora()


def _alternatives(name: str, models: list[type[BaseModel]], field: FieldInfo) -> str:
    tag = str(field.discriminator)
    default = getattr(field.default, tag)
    parts = [
        f"{'#' * (2 + name.count('.'))} `{name}`\n",
        f"One of these, chosen by `{tag}`; the default is `{default}`.\n",
    ]
    for model in models:
        value = model.model_fields[tag].default
        parts.append(f"**`{tag}: {value}`**: {_summary(model)}\n")
        if keys := [key for key in model.model_fields if key != tag]:
            parts.append(_fields(model, keys))
        for key in keys:
            for item in _items(model.model_fields[key].annotation):
                parts.append(f"An item of `{key}`: {_summary(item)}\n")
                parts.append(_fields(item, list(item.model_fields)))
    return "\n".join(parts)


def _fields(model: type[BaseModel], keys: list[str]) -> str:
    meanings = _meanings(model)
    rows = []
    for key in keys:
        field = model.model_fields[key]
        meaning = field.description or meanings.get(key, "")
        rows.append((f"`{key}`", _type(field), _default(field), meaning))
    return _table(("key", "type", "default", "meaning"), rows)


def _position() -> Iterator[str]:
    (model,) = _models(Config.model_fields["position"].annotation)
    yield f"## `position`\n\n{_summary(model)}\n"
    yield _fields(model, list(model.model_fields))
    rows = []
    for name, scheme in SCHEMES.items():
        position_ids = {"name": scheme.position_ids.name, **scheme.position_ids.options}
        parts = []
        for part in scheme.parts:
            place = {} if part.place is None else {"place": part.place}
            stacks = {} if part.stacks == "both" else {"stacks": part.stacks}
            layers = {} if part.layers is None else {"layers": part.layers}
            share = {} if part.share_layers is None else {"share_layers": part.share_layers}
            parts.append({"kind": part.kind, **place, **stacks, **layers, **share, **part.options})
        rows.append(
            (f"`{name}`", f"`{_yaml(position_ids)}`", ", ".join(f"`{_yaml(p)}`" for p in parts))
        )
    yield "The schemes, such as `position: shape`, and what they stand for:\n"
    yield _table(("scheme", "position ids", "parts"), rows)
    shared = " and ".join(f"`{name}`" for name, kind in KINDS.items() if kind.build.share_layers)
    yield (
        "A part has a `kind` and its options, and may have a `place` (`embedding`, `self`, `cross`;"
        " by default\nthe kind's first), `stacks` (`encoder`, `decoder`, `both`), `layers` (a"
        " number for the first n; a\nlist of layers counted from 0; `{every: k, offset: n}`; or"
        " `{except: …}` with one of these)"
        " and\n`share_layers` (whether all layers have one module and its weights;"
        f" by default {shared} do, as in\ntheir papers, and other kinds do not).\n"
    )
    yield "### Position ids\n"
    yield from _entries(POSITION_IDS)
    yield "### Kinds\n"
    yield from _entries(KINDS)


def _entries(registry: Mapping[str, Entry[Any]]) -> Iterator[str]:
    def default(option: inspect.Parameter) -> str:
        return "required" if option.default is option.empty else f"`{_yaml(option.default)}`"

    for name, entry in registry.items():
        yield f"**`{name}`**: {entry.summary} ({entry.source})\n"
        types, meanings = get_type_hints(entry.build.__init__), _meanings(entry.build)
        rows = [
            (f"`{key}`", _type_name(types[key]), default(option), meanings[key])
            for key, option in entry.options().items()
        ]
        if rows:
            yield _table(("option", "type", "default", "meaning"), rows)


def _sizes() -> str:
    header = ("size", *SIZES["base"])
    rows = [(f"`{name}`", *map(str, shape.values())) for name, shape in SIZES.items()]
    return "What `size` fills in:\n\n" + _table(header, rows)


def _summary(model: type) -> str:
    """Return the docstring up to its list of attributes."""
    return re.split(r"\n(?:Attributes|Args|Raises):\n", inspect.getdoc(model) or "")[0].strip()


def _meanings(model: type) -> dict[str, str]:
    """Return what the docstrings of a class and of its bases say of each attribute or argument."""
    found: dict[str, str] = {}
    for base in reversed(model.__mro__):
        text = inspect.cleandoc(base.__doc__ or "")
        match = re.search(r"^(?:Attributes|Args):\n((?: {4}.*\n?|\n(?= {4}))+)", text, re.MULTILINE)
        for entry in re.split(r"\n(?= {4}\S)", match[1] if match else ""):
            names, _, meaning = " ".join(entry.split()).partition(": ")
            if not re.fullmatch(r"see `[A-Z]\w+`\.", meaning):  # the base has said it
                found |= dict.fromkeys(names.split(", "), meaning)
    return found


def _models(annotation: Any) -> list[type[BaseModel]]:
    """Return the configuration models that an annotation allows."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    if get_origin(annotation) in (Union, UnionType):
        return [model for option in get_args(annotation) for model in _models(option)]
    return []


def _items(annotation: Any) -> list[type[BaseModel]]:
    """Return the configuration model that a list consists of, if it does."""
    return _models(get_args(annotation)[0]) if get_origin(annotation) is list else []


def _corpora() -> str:
    """Return the papers' corpora, which `data.corpus` may name instead of a section."""
    rows = []
    for name, section in CORPORA.items():
        text = section.get("repo") or ", ".join(section["train"])
        rows.append((f"`{name}`", section["corpus"], f"`{text}`", ", ".join(section["test"])))
    return (
        "`data.corpus: NAME` is a corpus of the papers ([Paper scale](paper-scale.md)):\n\n"
        + _table(("name", "corpus", "training text", "test"), rows)
    )


def _type(field: FieldInfo) -> str:
    limits = [
        f"{sign}{getattr(limit, name)}"
        for limit in field.metadata
        for name, sign in LIMITS.items()
        if getattr(limit, name, None) is not None
    ]
    return ", ".join([_type_name(field.annotation), *limits])


def _type_name(annotation: Any) -> str:
    origin, options = get_origin(annotation), get_args(annotation)
    if origin is Literal:
        return ", ".join(f"`{option}`" for option in options)
    if origin in (Union, UnionType):
        return " or ".join(map(_type_name, options))
    if origin in (list, tuple, Sequence):
        if options and options[-1] is not ... and origin is tuple:
            return f"[{', '.join(map(_type_name, options))}]"
        kinds = dict.fromkeys(_type_name(option) for option in options if option is not ...)
        return f"list of {' or '.join(kinds)}"
    if origin is dict:
        return "mapping"
    if origin is Callable:
        return "function"
    if hasattr(annotation, "__metadata__"):  # Annotated
        return _type_name(annotation.__origin__)
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return "section"
    names = {Path: "path", NoneType: "null", bool: "true or false", str: "text"}
    return names.get(annotation) or str(getattr(annotation, "__name__", annotation))


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    default = field.get_default(call_default_factory=True)
    return "" if default is PydanticUndefined else f"`{_yaml(default)}`"


def _yaml(value: Any) -> str:
    """Return a value as one would write it on a line of YAML."""
    if isinstance(value, BaseModel):
        return _yaml(value.model_dump(exclude_defaults=True))
    if value == "":
        return '""'
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key}: {_yaml(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_yaml, value))}]"
    return str(value)


def _table(header: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    lines = [header, tuple("---" for _ in header), *rows]
    cells = [" | ".join(cell.replace("|", "\\|") for cell in line) for line in lines]
    return "".join(f"| {line} |\n" for line in cells)


if __name__ == "__main__":
    for name, text in (("configuration", document()), ("study", study_document())):
        Path(__file__).with_name(f"{name}.md").write_text(text, encoding="utf-8")
