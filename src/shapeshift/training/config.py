"""How a model is trained: optimiser, schedule, batches, checkpoints."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, Field, ValidationInfo, field_validator

from shapeshift._system.errors import ShapeshiftError
from shapeshift._system.schema import HomePath, Strict
from shapeshift.data.config import BatchConfig
from shapeshift.training.manifest import Progress

Beta = Annotated[float, Field(ge=0, lt=1)]
MetricName = Literal["bleu", "chrf", "chrf++", "comet"]
MetricNames = Annotated[
    tuple[MetricName, ...], AfterValidator(lambda names: tuple(dict.fromkeys(names)))
]
"""Names of metrics, each once."""


class OptimizerConfig(Strict):
    """Adam (Kingma and Ba 2015) and its variants. The defaults are the SHAPE paper's (Table 4)."""

    name: Literal["adam", "adamw", "radam"] = Field("adam", description="optimizer")
    betas: tuple[Beta, Beta] = Field(
        (0.9, 0.98), description="decay rates of the first and second moments"
    )
    eps: float = Field(1e-8, gt=0, description="added to the square root of the second moment")
    weight_decay: float = Field(0.0, ge=0, description="decoupled in adamw, L2 in the others")


class Noam(Strict):
    """lr(u) = factor · D^-0.5 · min(u^-0.5, u · warmup^-1.5) (Vaswani et al. 2017, equation 3)."""

    name: Literal["noam"] = "noam"
    factor: float = Field(2.0, gt=0, description="scales the whole curve")
    warmup_updates: int = Field(8000, ge=1, description="updates until the peak")


class InverseSquareRoot(Strict):
    """lr(u) = peak · min(u / warmup, (warmup / u)^0.5): Noam with a given peak."""

    name: Literal["inverse_sqrt"] = "inverse_sqrt"
    peak: float = Field(1e-3, gt=0, description="the largest learning rate")
    warmup_updates: int = Field(4000, ge=1, description="updates until the peak")


class Cosine(Strict):
    """Increases linearly to the peak in `warmup_updates`, then follows half a cosine down to
    `final` at the last update (Loshchilov and Hutter 2017, without restarts)."""

    name: Literal["cosine"] = "cosine"
    peak: float = Field(1e-3, gt=0, description="the largest learning rate")
    warmup_updates: int = Field(5000, ge=1, description="updates until the peak")
    final: float = Field(0.0, ge=0, description="learning rate of the last update")


Schedule = Annotated[Noam | InverseSquareRoot | Cosine, Field(discriminator="name")]


class TrainingConfig(Strict):
    """One training run."""

    seed: int = Field(1, ge=0, description="seed of weights, dropout, shuffling and offsets")
    init_from: HomePath | None = Field(
        None,
        description="folder of a run: training starts from its final model and subword models;"
        " the model must have the same shape, but `position` may differ; null: random weights",
    )
    max_updates: int = Field(200_000, ge=1, description="number of updates of the whole run")
    optimizer: OptimizerConfig = OptimizerConfig()
    schedule: Schedule = Noam()
    batch: BatchConfig = BatchConfig()
    accumulation: int = Field(
        1, ge=1, description="number of batches in an update, over all processes"
    )
    label_smoothing: float = Field(0.1, ge=0, lt=1, description="ε, see `model.loss`")
    clip_norm: float | None = Field(
        None, gt=0, description="maximum norm of the gradient; null: no limit"
    )
    precision: Literal["auto", "fp32", "bf16"] = Field(
        "auto",
        description="auto: bf16 autocast if the hardware multiplies bf16 faster, else fp32; a run"
        " keeps what it began with",
    )
    compile: bool = Field(
        False,
        description="compile each layer with `torch.compile` for training: the first updates take"
        " half a minute or more, later ones less time on a GPU; slower on a CPU",
    )
    device: str = Field("auto", description="auto, cpu, cuda or cuda:N")
    rank_timeout_s: float = Field(
        50.0, gt=0, le=1e8, description="seconds that processes wait for each other"
    )
    log_every: int = Field(50, ge=1, description="updates between two log lines")
    validate_every: int | None = Field(
        None, ge=1, description="updates between two validations; null: same as `checkpoint_every`"
    )
    validate_metrics: MetricNames = Field(
        (), description="metrics to compute at each validation, on the translated validation set"
    )
    checkpoint_every: int = Field(5000, ge=1, description="updates between two regular checkpoints")
    keep_checkpoints: int = Field(
        10,
        ge=1,
        description="number of the newest checkpoints that are kept; the best one is always kept",
    )
    average_checkpoints: int = Field(
        10, ge=1, description="number of the last checkpoints that are averaged"
    )
    final_weights: Literal["average", "best"] = Field(
        "average", description="the final model: mean of the last checkpoints, or the best one"
    )
    best_metric: Literal["loss"] | MetricName = Field(
        "loss", description="metric that selects the best checkpoint, which is always kept"
    )

    patience: int | None = Field(
        None,
        ge=1,
        description="training ends after this number of validations in a row without an"
        " improvement; null: train to `max_updates`",
    )

    @field_validator("schedule")
    @classmethod
    def _reach_the_peak(cls, schedule: Schedule, info: ValidationInfo) -> Schedule:
        warmup, updates = schedule.warmup_updates, info.data.get("max_updates")
        if isinstance(schedule, Cosine) and updates is not None and warmup >= updates:
            lower = f"warmup_updates={max(1, updates // 10)} here, or " if updates > 1 else ""
            raise ValueError(
                f"the cosine begins after warmup_updates={warmup} and ends at training.max_updates="
                f"{updates}; set {lower}training.max_updates={warmup + 1} or more"
            )
        return schedule

    @field_validator("average_checkpoints")
    @classmethod
    def _keep_what_is_averaged(cls, number: int, info: ValidationInfo) -> int:
        kept = info.data.get("keep_checkpoints", number)
        if number > kept:
            raise ValueError(
                f"{number} needs training.keep_checkpoints={number} or more, not {kept}"
            )
        return number

    def check_shared(self, num_processes: int) -> None:
        """Raise `ShapeshiftError` if this many processes cannot share an update evenly."""
        batches = self.accumulation
        if batches % num_processes:
            more = -(-batches // num_processes) * num_processes
            max_tokens = max(1, self.batch.max_tokens * batches // more)
            raise ShapeshiftError(
                f"an update of {batches} batches (training.accumulation) cannot be shared among"
                f" {num_processes} processes; set training.accumulation={more}, and"
                f" training.batch.max_tokens={max_tokens} for updates of the same size"
            )

    def last_update(self, progress: Progress) -> int:
        """Return the last update of a run with this progress: `max_updates`, or the current update
        if `patience` is used up."""
        best, validated = progress.best_update, progress.validated_update
        if self.patience is None or best is None or validated is None:
            return self.max_updates
        every = self.validate_every or self.checkpoint_every
        out_of_patience = validated // every - best // every >= self.patience
        return progress.update if out_of_patience else self.max_updates

    def averaged_updates(self, last: int) -> list[int]:
        """Return the updates of the checkpoints that are averaged into the final model."""
        every = self.checkpoint_every
        regular = range(every, last, every)
        return [*regular[max(0, len(regular) + 1 - self.average_checkpoints) :], last]

    @property
    def validated_metrics(self) -> tuple[MetricName, ...]:
        """The metrics that each validation computes, without duplicates."""
        best = () if self.best_metric == "loss" else (self.best_metric,)
        return tuple(dict.fromkeys((*self.validate_metrics, *best)))
