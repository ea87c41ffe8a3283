"""Interface for progress displays and other watchers of a training run."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from shapeshift.training.checkpoints import Resumed


class Observer:
    """Watches a run, as a progress bar does; called in the main process alone.

    These methods do nothing: override those that are wanted.
    """

    def preparing(self, stage: str, done: int, total: int | None) -> None:
        """Called while the data are prepared."""

    def started(self, line: str) -> None:
        """Called when a new run has taken weights from another run, with that run's folder."""

    def noticed(self, line: str) -> None:
        """Called when a new run begins, with each notice about its text: pairs that are left out,
        and problems that spoil scores."""

    def resumed(self, resumed: Resumed) -> None:
        """Called with the checkpoint from which training continues, and the damaged ones."""

    def advanced(self, update: int) -> None:
        """Called when training begins or continues, and after each update."""

    def updated(self, update: int, loss: float, tokens_per_s: float) -> None:
        """Called every `log_every` updates; loss in nats a token since the last call."""

    def validated(self, update: int, values: dict[str, float]) -> None:
        """Called after each validation."""
