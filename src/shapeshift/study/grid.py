"""A grid of runs: named axes, seeds and profiles in one YAML file, resolved to runs.

The key `grid` of a study holds one, such as that of `studies/shape/table2.yaml`; `GridConfig`
describes each key. Overrides are
applied in this order: those of the profile, of the axes in the order of the file, of the rules in
the order of the file, and the seed, which only `seeds` and the base set.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations, product
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, BeforeValidator, Field, ValidationError, model_validator

from shapeshift._system.errors import ShapeshiftError, unknown
from shapeshift._system.schema import Strict
from shapeshift.config import Config
from shapeshift.config.config import parse_layers
from shapeshift.config.errors import messages
from shapeshift.config.files import Layer, find_config, lay_over, read_document, read_layers
from shapeshift.config.foreign_names import RENAMED
from shapeshift.run.identity import run_key
from shapeshift.run.measures import check_measures
from shapeshift.training.config import TrainingConfig


def _name(given: Any) -> Any:
    """Return a name as text, also if YAML reads it as a number or a boolean."""
    return str(given).lower() if isinstance(given, bool | int | float) else given


def _several(given: Any) -> Any:
    return given if isinstance(given, list | tuple) else (given,)


def _each_once(seeds: tuple[int, ...]) -> tuple[int, ...]:
    if twice := sorted({seed for seed in seeds if seeds.count(seed) > 1}):
        raise ValueError(f"give each seed once; {', '.join(map(str, twice))} is there again")
    return seeds


def sets_seed(override: str) -> bool:
    """Return whether an override sets `training.seed`."""
    if override.partition("=")[0].partition(".")[0] != "training":
        return False
    return ("training", "seed") in lay_over([Layer([override])]).given


def _without_seed(overrides: tuple[str, ...]) -> tuple[str, ...]:
    if given := [override for override in overrides if sets_seed(override)]:
        raise ValueError(
            f"{given[0]!r}: a grid sets the seed of its runs itself; list seeds under `seeds` of"
            " the grid or of a profile"
        )
    return overrides


Name = Annotated[str, BeforeValidator(_name), Field(min_length=1)]
Condition = dict[Name, Annotated[tuple[Name, ...], BeforeValidator(_several), Field(min_length=1)]]
Overrides = Annotated[tuple[str, ...], AfterValidator(_without_seed)]
Seeds = Annotated[
    tuple[Annotated[int, Field(ge=0)], ...], Field(min_length=1), AfterValidator(_each_once)
]
Base = str | dict[str, Any]
_Model = TypeVar("_Model", bound=Strict)


class Profile(Strict):
    """Changes that a profile makes to the grid.

    Attributes:
        base: a configuration that replaces the base of the grid.
        overrides: overrides that are applied before those of the axes.
        seeds: seeds that replace those of the grid.
    """

    base: Base | None = None
    overrides: Overrides = ()
    seeds: Seeds | None = None


class Rule(Strict):
    """Overrides for the runs that meet a condition.

    Attributes:
        when: the condition: axis, `profile` or `seed` → one value or a list.
        overrides: overrides that are applied after those of the axes.
    """

    when: Condition = Field(min_length=1)
    overrides: Overrides


class GridConfig(Strict):
    """The runs: all combinations of the settings of named axes, each once for every seed.

    Attributes:
        axes: axis → setting → overrides.
        profiles: name → section; by default there is one profile, `full`, which changes nothing.
        seeds: seeds of training, in place of the one of the base; there is a run for each. By
            default there is one, the base's `training.seed`.
        base: the configuration that all runs share: a file, relative to this one, the name of a
            shipped one, such as `multi30k`, or a mapping.
        rules: overrides for some of the runs.
        exclude: conditions (axis, `profile` or `seed` → one value or a list); runs that meet one of
            them are left out.
        measures: the results of a trained run: `MEASURES`, or `package.module:function`.
    """

    axes: dict[Name, Annotated[dict[Name, Overrides], Field(min_length=1)]] = Field(min_length=1)
    profiles: dict[Name, Profile] = Field(default={"full": Profile()}, min_length=1)
    seeds: Seeds | None = None
    base: Base = Field(default_factory=dict)
    rules: tuple[Rule, ...] = ()
    exclude: tuple[Condition, ...] = ()
    measures: Annotated[tuple[str, ...], AfterValidator(check_measures)] = ("score-test",)

    @model_validator(mode="after")
    def _check_names(self) -> GridConfig:
        for taken in ("profile", "seed"):
            if taken in self.axes:
                raise ValueError(f"an axis cannot be called {taken!r}: conditions know that name")
        every = (self.seeds, *(own.seeds for own in self.profiles.values()))
        seeds = {str(seed) for some in every for seed in some or ()}
        conditions = (*(rule.when for rule in self.rules), *self.exclude)
        for axis, values in (item for condition in conditions for item in condition.items()):
            if axis == "seed" and not seeds:
                raise ValueError(
                    f"a condition names the seed {', '.join(values)}, but the grid lists none; list"
                    " seeds under `seeds`, which conditions know"
                )
            pseudo: dict[str, Collection[str]] = {"profile": self.profiles, "seed": seeds}
            if problem := unknown_name({**self.axes, **pseudo}, axis, values):
                raise ValueError(f"a condition names what is not there: {problem}")
        return self


def unknown_name(
    axes: Mapping[str, Collection[str]], axis: str, settings: Iterable[str] = ()
) -> str:
    """Return the error for an unknown axis or setting; empty if all are known."""
    if (new := RENAMED.get(axis)) in axes:
        return f"{axis} is now {new}"
    if axis not in axes:
        return unknown("no axis", axis, axes)
    for setting in settings:
        if setting not in axes[axis]:
            return unknown(f"the axis {axis} has no setting", setting, axes[axis])
    return ""


@dataclass(frozen=True)
class PlannedRun:
    """One run of a grid.

    Attributes:
        grid, profile: where it is from.
        axes: axis → the setting's name, in the grid's order.
        seed: of training.
        config: with everything applied.
        measures: names of the measures that are taken once it is trained.
    """

    grid: str
    profile: str
    axes: Mapping[str, str]
    seed: int
    config: Config
    measures: tuple[str, ...] = ()

    @cached_property
    def key(self) -> str:
        """The name of the run's folder: what its result depends on, hashed; see `identity`."""
        return run_key(self.config)

    @property
    def name(self) -> str:
        """What people call it: `extrapolate/shape/1`."""
        return "/".join((*self.axes.values(), str(self.seed)))


def with_training(config: Config, **changes: int) -> Config:
    """Return a configuration with other values of keys of `training`."""
    training = config.training.model_copy(update=changes)
    return config.model_copy(update={"training": training})


def validated(
    model: type[_Model], document: Any, path: Path, context: dict[str, Any] | None = None
) -> _Model:
    """Return what a file says; one `ShapeshiftError` names all mistakes in it."""
    try:
        return model.model_validate(document, context=context)
    except ValidationError as error:
        raise ShapeshiftError("; ".join(messages(error, model, document)), path=path) from error


def distinct(runs: Iterable[PlannedRun]) -> list[PlannedRun]:
    """Return the runs with different keys; of runs with the same key, the first."""
    first: dict[str, PlannedRun] = {}
    for planned in runs:
        first.setdefault(planned.key, planned)
    return [*first.values()]


class Grid:
    """A grid, read from a file; see the module.

    Args:
        path: the file.
        document: the grid, where it is a part of what the file says; by default all of it.
        name: by default that of the file, without its suffix.
        typed: whether its overrides come from the command line: paths in them are relative to the
            working directory, not to the file.

    Attributes:
        name: in results, such as `shape:table2`.
        path: the file.
        config: what it says.

    Raises:
        ShapeshiftError: the file cannot be read; one error names all mistakes in it.
    """

    def __init__(
        self, path: str | Path, document: Any = None, name: str = "", *, typed: bool = False
    ):
        self.path = Path(path)
        self.name = name or self.path.stem
        self._typed = typed
        document = read_document(self.path) if document is None else document
        self.config = validated(GridConfig, document, self.path)

    @cached_property
    def scored(self) -> dict[str, set[str]]:
        """Profile → the metrics that its runs are scored with."""
        return {
            profile: {
                name for planned in self.runs(profile) for name in planned.config.evaluation.metrics
            }
            for profile in self.config.profiles
        }

    def runs(self, profile: str, overrides: Sequence[str] = ()) -> tuple[PlannedRun, ...]:
        """Return the runs of a profile: the seed varies fastest, then the last axis.

        Two runs may have the same key, where two settings mean the same; they share a folder.

        Args:
            profile: a name from `config.profiles`.
            overrides: for all runs, after all others, such as `data.corpus.root=PATH`.

        Raises:
            ShapeshiftError: an unknown profile; wrong settings, all in one error, each with a run
                that has it; an override of the seed, or one that undoes what an axis varies; or
                no run left.
        """
        if profile not in self.config.profiles:
            problem = unknown("has no profile", profile, self.config.profiles)
            raise ShapeshiftError(problem, path=self.path)
        if any(map(sets_seed, overrides)):
            raise ShapeshiftError(
                "a grid sets training.seed itself; choose among its seeds with --seed",
                path=self.path,
            )
        runs = self._resolve(profile, overrides)
        if overrides:
            without: Sequence[PlannedRun] = ()
            with suppress(ShapeshiftError):  # settings may be right with the overrides alone
                without = self._resolve(profile, ())
            self._refuse_undone(without, runs, overrides)
        return runs

    def _resolve(self, profile: str, overrides: Sequence[str]) -> tuple[PlannedRun, ...]:
        own = self.config.profiles[profile]
        base = self._base(own)
        runs: list[PlannedRun] = []
        before: list[Layer] | None = None
        found: Config | None = None
        wrong: dict[str, str] = {}  # what, and in which run first
        seeds = own.seeds or self.config.seeds or (seed_of(base),)
        for values, seed in product(product(*self.config.axes.values()), seeds):
            axes = dict(zip(self.config.axes, values, strict=True))
            place = {**axes, "profile": profile, "seed": str(seed)}
            if any(_holds(condition, place) for condition in self.config.exclude):
                continue
            lists: list[Sequence[str]] = [
                own.overrides,
                *(settings[axes[axis]] for axis, settings in self.config.axes.items()),
                *(rule.overrides for rule in self.config.rules if _holds(rule.when, place)),
            ]
            path = None if self._typed else self.path
            layers = [*(Layer(each, path) for each in lists), Layer(overrides)]
            if layers != before:  # as they are for the next seed, unless a rule names one
                before = layers
                try:
                    found = parse_layers([*base, *layers])
                except ShapeshiftError as error:
                    found = None
                    where = " ".join(f"{axis}={value}" for axis, value in place.items())
                    wrong.setdefault(str(error), f"in the run {where}: {error}")
            if found is None:
                continue
            config = with_training(found, seed=seed)
            runs.append(PlannedRun(self.name, profile, axes, seed, config, self.config.measures))
        if wrong:
            raise ShapeshiftError("; ".join(wrong.values()), path=self.path)
        if not runs:
            raise ShapeshiftError(
                f"no run is left in profile {profile!r}; look at `exclude`", path=self.path
            )
        return tuple(runs)

    def _refuse_undone(
        self, without: Sequence[PlannedRun], runs: Sequence[PlannedRun], overrides: Sequence[str]
    ) -> None:
        """Raise a `ShapeshiftError` for an override that undoes what an axis varies, or that makes
        two runs equal. It may set for all runs what rules set for some.

        Args:
            without: the runs without the overrides; none if their settings are wrong.
            runs: the same runs with them.
            overrides: that are applied last.
        """
        before, after = (
            [_flat(each.config.model_dump(mode="json")) for each in some]
            for some in (without, runs)
        )
        rules = [each for rule in self.config.rules for each in rule.overrides]
        for one, two in combinations(range(len(before)), 2):
            axes, others = runs[one].axes, runs[two].axes
            varied = [axis for axis in axes if axes[axis] != others[axis]]
            if runs[one].seed != runs[two].seed:
                continue
            both = f"{'/'.join(axes.values())} and {'/'.join(others.values())}"
            keys = sorted(before[one].keys() | before[two].keys()) if len(varied) == 1 else ()
            for key in keys:
                was_varied = before[one].get(key) != before[two].get(key)
                is_varied = after[one].get(key) != after[two].get(key)
                if was_varied and not is_varied and not any(_concerns(x, key) for x in rules):
                    given = [x for x in overrides if _concerns(x, key)] or overrides
                    raise ShapeshiftError(
                        f"{' '.join(given)} undoes what the axis {varied[0]} varies: {key}, in"
                        f" {both}; leave it out, or write a grid of your own",
                        path=self.path,
                    )
            if runs[one].key == runs[two].key and without[one].key != without[two].key:
                raise ShapeshiftError(
                    f"{' '.join(overrides)} makes one run of {both}; leave it out, or write a grid"
                    " of your own",
                    path=self.path,
                )

    def _base(self, own: Profile) -> list[Layer]:
        base = self.config.base if own.base is None else own.base
        if not isinstance(base, str):
            return [Layer(base, self.path)]
        try:
            return read_layers(find_config(base, self.path.parent))
        except ShapeshiftError as error:
            raise ShapeshiftError(f"base: {error}", path=self.path) from error


def seed_of(layers: Sequence[Layer]) -> int:
    """Return `training.seed` of a configuration, or the default. An invalid value also gives the
    default, because the check of the configuration refuses it later."""
    training = lay_over(layers).document.get("training")
    seed = training.get("seed") if isinstance(training, Mapping) else None
    default: int = TrainingConfig.model_fields["seed"].default
    return seed if isinstance(seed, int) and seed >= 0 else default


def _flat(node: Any, prefix: str = "") -> dict[str, Any]:
    """Return dotted key → value for all plain values of a document."""
    if not isinstance(node, dict | list):
        return {prefix.rstrip("."): node}
    items = node.items() if isinstance(node, dict) else enumerate(node)
    return {x: y for key, below in items for x, y in _flat(below, f"{prefix}{key}.").items()}


def _concerns(override: str, key: str) -> bool:
    """Return whether an override sets a key, a section around it, or a key inside it."""
    own = override.partition("=")[0]
    return f"{key}.".startswith(f"{own}.") or own.startswith(f"{key}.")


def _holds(condition: Condition, place: Mapping[str, str]) -> bool:
    return all(place[axis] in values for axis, values in condition.items())
