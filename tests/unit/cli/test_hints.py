"""What is asked for in another tool's way is answered with what works here."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from shapeshift.cli import app
from shapeshift.config import Config, load_config, parse_config
from shapeshift.config_errors import find_key, key_paths
from shapeshift.errors import ShapeshiftError
from shapeshift.foreign_names import FOREIGN_NAMES

CONFIGS = Path(__file__).parents[3] / "configs"
DEMO = str(CONFIGS / "demo.yaml")


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


def test_an_option_with_a_slip_is_named_as_ever() -> None:
    assert "--dry-run" in printed("train", DEMO, "--dryrun")


def test_a_preset_with_settings_of_another_position_is_refused() -> None:
    assert "position.name is given twice" in str(
        CliRunner().invoke(app, ["compare", "demo", "--system", "rope position=ape"]).exception
    )


@pytest.mark.parametrize("name", sorted(FOREIGN_NAMES))
def test_a_foreign_name_stands_for_a_key_that_there_is(name: str) -> None:
    assert FOREIGN_NAMES[name] in key_paths(Config)
    assert find_key(name, Config) == FOREIGN_NAMES[name]
    with pytest.raises(ShapeshiftError, match=f"did you mean '{FOREIGN_NAMES[name]}'"):
        parse_config({"training": {name: 1}} if name != "steps" else {"model": {name: 1}})


@pytest.mark.parametrize(
    ("override", "meant"),
    [
        ("position.max_offset=3", "position.indices.max_offset"),
        ("position.max_distance=3", "position.parts.0.max_distance"),
        ("model.d_model=8", "model.dim"),
        ("schedule.peak=1", "training.schedule"),
        ("model.max_updates=8", "training.max_updates"),
        ("training.max_update=8", "training.max_updates"),
        ("decoding.num_beams=8", "decoding.beam"),
        ("data.corpus.num_trian=8", "data.corpus.num_train"),
        ("dropout=0.3", "model.dropout"),
        ("training.batch.window=9", "training.batch.sort_window"),
        ("training.final=best", "training.final_weights"),
        ("training.best_by=bleu", "training.best_metric"),
        ("training.validate_bleu=true", "training.validate_metrics"),
        ("decoding.window=9", "decoding.buffer_size"),
        ("evaluation.edges=[9]", "evaluation.length_buckets"),
    ],
)
def test_a_wrong_key_is_answered_with_the_right_one(override: str, meant: str) -> None:
    with pytest.raises(ShapeshiftError, match=f"unknown key; did you mean '{meant}'"):
        parse_config({}, [override])


@pytest.mark.parametrize("override", ["model.zzzzz=1", "training.qqq={a: 1}", "schedule=3"])
def test_no_key_is_answered_with_itself_or_nonsense(override: str) -> None:
    with pytest.raises(ShapeshiftError) as raised:
        parse_config({}, [override])
    assert ("did you mean" in str(raised.value)) == ("schedule" in override)
    assert "did you mean 'schedule'" not in str(raised.value)


def test_what_a_corpus_is_may_be_forgotten_where_it_is_clear() -> None:
    assert parse_config({"data": {"corpus": {"num_train": 7}}}).data.corpus.num_train == 7
    files = {"source": "no", "target": "en", "train": "train", "valid": ["v"], "test": "t"}
    with pytest.raises(ShapeshiftError, match=r"`corpus:` is missing.*files, hub, grammar"):
        parse_config({"data": {"corpus": files}})
    corpus = parse_config({"data": {"corpus": {**files, "corpus": "files"}}}).data.corpus
    assert (corpus.source, corpus.train, corpus.test) == ("no", ["train"], ["t"])
    with pytest.raises(ShapeshiftError, match="did you mean 'cosine'"):
        parse_config({}, ["training.schedule=cosin"])


def test_a_dry_run_shows_the_scheme_and_a_warm_up_that_does_not_end() -> None:
    settings = ("position=less-feeding", "training.max_updates=200")
    text = printed("train", DEMO, "--dry-run", *settings, status=0)
    assert "less-feeding" in text
    assert "sinusoidal at self (first 1 layer, add_to=qk)" in text
    assert "warmup_updates=200 is not below training.max_updates=200" in text
    assert "absolute" in text
    longer = printed("train", DEMO, "--dry-run", "training.max_updates=301", status=0)
    assert "warmup_updates" not in longer


@pytest.mark.parametrize("path", sorted(CONFIGS.glob("*.yaml")), ids=lambda path: path.stem)
def test_no_shipped_configuration_warms_up_to_the_end(path: Path) -> None:
    training = load_config(path, []).training
    assert training.schedule.warmup_updates < training.max_updates
