"""Several position representations on the same text, as a study of one study: what
`shapeshift compare` runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from shapeshift._system.errors import ShapeshiftError
from shapeshift.config import Config
from shapeshift.config.files import find_config, read_layers
from shapeshift.data.config import Interpolate
from shapeshift.model.position_config import check_label
from shapeshift.run.costs import MEMORY_LENGTH
from shapeshift.run.measures import declared
from shapeshift.study.grid import Grid, PlannedRun, seed_of
from shapeshift.study.significance import MIN_SEEDS
from shapeshift.study.spec import StudySpec
from shapeshift.study.study import Paper, Study

STUDY = "comparison"
"""Name of the study, and of its folder."""

AXIS = "position"

_TITLES = {"chrF2": "chrF", "chrF2++": "chrF++"}
"""Of columns, where they are not the name of the metric."""


def comparison(
    config: str | Path,
    positions: Mapping[str, Sequence[str]],
    num_seeds: int,
    overrides: Sequence[str] = (),
) -> Paper:
    """Return a paper with one study that compares the positions.

    Args:
        config: a configuration file, or the name of a shipped one.
        positions: name → its settings, two or more; the others are tested against the first.
        num_seeds: of training, from the `training.seed` of the file on: 1, 2, ….
        overrides: settings for all runs.

    Raises:
        ShapeshiftError: for a file or settings that are wrong.
    """
    path = find_config(config)
    first_seed = seed_of(read_layers(path))
    title = f"{path.stem}: {', '.join(positions)}"
    grid = Grid(
        path,
        {
            "axes": {AXIS: {name: [*settings] for name, settings in positions.items()}},
            "profiles": {path.stem: {}},
            "seeds": [*range(first_seed, first_seed + num_seeds)],
            "base": str(path.absolute()),
            "measures": ["score-test", "speed", "step-memory"],
        },
        typed=True,
    )
    runs = grid.runs(path.stem, overrides)
    _check(runs)
    common = runs[0].config
    first = next(iter(positions))
    # Those that evaluation.metrics has, the first one with its gain.
    metrics = [x for x in declared(("score-test",)) if x.examples and x.splits == ("test",)]
    metrics = [x for x in metrics if x.setting in common.evaluation.metrics]
    scores: dict[str, dict[str, str]] = {
        _TITLES.get(each.name, each.name): {"metric": each.name, "split": "test"}
        for each in metrics
    }
    main, *others = scores
    table = {
        "title": "test text",
        "rows": [AXIS],
        "columns": {
            main: scores[main],
            f"over {first}": {"gain_of": main},
            **{each: scores[each] for each in others},
            "speed": {"metric": "speed"},
            "memory": {"metric": "step_memory", "bucket": f"length {MEMORY_LENGTH}"},
            "parameters": {"metric": "parameters"},
        },
        "baseline": {AXIS: first},
        "notes": [
            "speed: of training, over that of ape on the same batches",
            f"memory: of a training step on {MEMORY_LENGTH} subwords a sentence, over that of ape",
        ],
    }
    by_length = {
        "name": f"{main.lower()}-by-length",
        "title": f"{main} by source length in subwords",
        "metric": metrics[0].name,
        "lines": AXIS,
        "tested": True,
        "notes": [
            "* is about other sentences; with fewer than three seeds, another seed may give another"
            " order: --seeds 3"
        ]
        * (num_seeds < MIN_SEEDS),
    }
    spec = {"title": title, "grid": "", "tables": [table], "by_length": [by_length]}
    if any(x.config.data.subwords != common.data.subwords for x in runs):
        del spec["by_length"]  # which counts subwords
    study = Study(STUDY, StudySpec.model_validate(spec), grid, path)
    return Paper("positions", title, "several position representations", {STUDY: study}, path)


def _joined(config: Config) -> Interpolate | None:
    """Return the recipe if it joins sentences, those of the test text too."""
    recipe = config.data.recipe
    return recipe if isinstance(recipe, Interpolate) else None


def _check(runs: Sequence[PlannedRun]) -> None:
    """Raise a `ShapeshiftError` if two positions are one run, have the name of another scheme, or
    would be scored on different text."""
    first, named = runs[0], dict[str, str]()
    for planned in runs:
        name = planned.axes[AXIS]
        try:
            check_label(name, planned.config.position.scheme)
        except ShapeshiftError as error:
            raise ShapeshiftError(f"position {error}") from error
        if (other := named.setdefault(planned.key, name)) != name:
            raise ShapeshiftError(
                f"positions {other!r} and {name!r} are two names of the same run; leave one out"
            )
        own, wanted = planned.config, first.config
        for key, same in (
            ("data.corpus", own.data.corpus == wanted.data.corpus),
            ("data.recipe", _joined(own) == _joined(wanted)),
            ("evaluation.tokenize", own.bleu_tokenizer == wanted.bleu_tokenizer),
            ("evaluation.metrics", own.evaluation.metrics == wanted.evaluation.metrics),
        ):
            if not same:
                raise ShapeshiftError(
                    f"position {name!r} has another {key} than {first.axes[AXIS]!r}, so that their"
                    " scores do not compare; set it for all, outside of --position"
                )
