"""What is asked for in another tool's way is answered with what works here."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from shapeshift.cli import app

DEMO = str(Path(__file__).parents[3] / "configs" / "demo.yaml")


def printed(*arguments: str, status: int = 2) -> str:
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == status, result.output
    return result.output


@pytest.mark.parametrize(
    ("arguments", "remedy"),
    [
        (("train", DEMO, "--position", "rope"), "position=rope"),
        (("train", DEMO, "--beam=4"), "decoding.beam=VALUE"),
        (("train", DEMO, "--lr", "0.1"), "training.schedule.peak=0.1"),
        (("train", DEMO, "--set", "model.dim=4"), "KEY=VALUE"),
        (("train", DEMO, "--num-train-epochs", "3"), "set training.max_updates"),
        (("train", DEMO, "--dryrun"), "--dry-run"),
        (("train", "position=rope"), "configuration file before"),
        (("prepare", "position=rope"), "configuration file before"),
        (("translate", "RUN", "--beam", "10"), "--set decoding.beam=10"),
        (("translate", "RUN", "--max-tokens", "10"), "--set decoding.max_tokens=10"),
        (("translate", "RUN", "decoding.beam=10"), "--set decoding.beam=10"),
        (("translate", "RUN", "a.txt", "decoding.beam=10"), "--set decoding.beam=10"),
        (("score", "a", "b", "evaluation.metrics=bleu"), "--set evaluation.metrics=bleu"),
        (("report", "position=rope"), "has none"),
        (("demo", "training.seed=4"), "--seed"),
        (("compare", "demo", "--system", "../x"), "expected the name"),
        (("compare", "demo", "--system", ""), "expected the name"),
        (("compare", "demo", "--system", "ape"), "given twice"),
    ],
)
def test_a_usage_error_names_what_works(arguments: tuple[str, ...], remedy: str) -> None:
    assert remedy in printed(*arguments)


def test_a_preset_with_settings_of_another_position_is_refused() -> None:
    assert "position.name is given twice" in str(
        CliRunner().invoke(app, ["compare", "demo", "--system", "rope position=ape"]).exception
    )


def test_a_dry_run_shows_the_scheme_and_a_warm_up_that_does_not_end() -> None:
    settings = ("position=less-feeding", "training.batch.max_tokens=62")
    longer = printed("train", DEMO, "--dry-run", *settings, "training.max_updates=301", status=0)
    assert "warmup_updates" not in longer
    settings = (*settings, "training.max_updates=200")
    text = printed("train", DEMO, "--dry-run", *settings, status=0)
    assert "less-feeding" in text
    assert "sinusoidal at self (first 1 layer, add_to=qk)" in text
    assert "warmup_updates=200 is not below training.max_updates=200" in text
    assert "absolute" in text
