"""The measurements that a study may ask for, and the steps that make them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Metric:
    """A measurement.

    Attributes:
        meaning: what it is, for people.
        steps: of a grid; one of them makes it. None for what every run has, and for scores.
        setting: of a score: the name in `evaluation.metrics`, without which it is not computed.
        bucket: such as there are, where it is measured in parts alone.
    """

    meaning: str
    steps: tuple[str, ...] = ()
    setting: str = ""
    bucket: str = ""

    @property
    def is_score(self) -> bool:
        """Whether it scores translations of a split, by the step `score-SPLIT`."""
        return bool(self.setting)


_PARTED = "on Interpolate, where the joined sentences are scored one by one"

METRICS: dict[str, Metric] = {
    "BLEU": Metric("sacreBLEU", setting="bleu"),
    "chrF2": Metric("sacreBLEU's chrF", setting="chrf"),
    "chrF2++": Metric("sacreBLEU's chrF++", setting="chrf++"),
    "COMET": Metric("COMET, times 100", setting="comet"),
    "BLEU by sentence": Metric(f"BLEU {_PARTED}", setting="bleu"),
    "chrF2 by sentence": Metric(f"chrF {_PARTED}", setting="chrf"),
    "chrF2++ by sentence": Metric(f"chrF++ {_PARTED}", setting="chrf++"),
    "parameters": Metric("number of trained parameters"),
    "training_s": Metric("seconds of training"),
    "tokens_per_s": Metric("median target tokens per second in training"),
    "valid_loss": Metric("validation loss at the end of training"),
    "valid_perplexity": Metric("validation perplexity at the end of training"),
    "speed": Metric("training speed relative to `ape`, on the same batches", ("speed",)),
    "decoding_speed": Metric("decoding speed relative to `ape`", ("decoding-speed",)),
    "step_bytes": Metric(
        "peak memory of a training step in bytes", ("step-memory",), bucket="length 256"
    ),
    "step_memory": Metric("peak memory relative to `ape`", ("step-memory",), bucket="length 256"),
    "shift_similarity": Metric(
        "how similar the encoder's states are under different offsets",
        ("similarity", "learning"),
        bucket="layer 1",
    ),
}
"""Name → what it is."""

FACTS = {
    "shift invariant": "whether the library declares the position shift invariant",
    "trained lengths": "source lengths in training",
}
"""Metrics that are no measurements: what the library declares, what the settings say."""
