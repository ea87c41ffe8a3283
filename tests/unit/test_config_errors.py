"""A key that there is not is answered with the one that is meant."""

from __future__ import annotations

import re
from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

from shapeshift.config import Config, parse_config
from shapeshift.config_errors import find_key, key_paths, messages
from shapeshift.errors import ShapeshiftError
from shapeshift.foreign_names import FOREIGN_NAMES
from shapeshift.lab.grid import GridConfig
from shapeshift.papers.spec import ItemSpec


@pytest.mark.parametrize("name", sorted(FOREIGN_NAMES))
def test_a_foreign_name_stands_for_a_key_that_there_is(name: str) -> None:
    assert find_key(name, Config) == FOREIGN_NAMES[name]
    with pytest.raises(ShapeshiftError, match=f"did you mean '{FOREIGN_NAMES[name]}'"):
        parse_config({"training": {name: 1}} if name != "steps" else {"model": {name: 1}})


@pytest.mark.parametrize(
    ("override", "meant"),
    [
        ("position.max_offset=3", "position.position_ids.max_offset"),
        ("position.max_distance=3", "position.parts.0.max_distance"),
        ("model.d_model=8", "model.dim"),
        ("schedule.peak=1", "training.schedule"),
        ("model.max_updates=8", "training.max_updates"),
        ("training.max_update=8", "training.max_updates"),
        ("decoding.num_beams=8", "decoding.beam"),
        ("data.corpus.num_trian=8", "data.corpus.num_train"),
        ("dropout=0.3", "model.dropout"),
        ("d_model=8", "model.dim"),
        ("n_layers=2", "model.encoder_layers"),
        ("max_tokens=100", "training.batch.max_tokens"),
        ("save_interval=5", "training.checkpoint_every"),
    ],
)
def test_a_wrong_key_is_answered_with_the_right_one(override: str, meant: str) -> None:
    with pytest.raises(ShapeshiftError, match=f"unknown key; did you mean '{meant}'"):
        parse_config({}, [override])


def test_an_option_is_looked_for_in_the_settings_of_its_command_first() -> None:
    assert find_key("max_tokens", Config, ("decoding",)) == "decoding.max_tokens"
    assert find_key("max_tokens", Config, ("training",)) == "training.batch.max_tokens"


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


WRONG = ("x", 3.5, -1, True, [], [[1]], [3.5, {}], {"x": 3}, {"x": {"y": [{}]}}, [{"x": 3.5}])
INTERNAL = r"\w\[|\b(tuple|dict|literal|function|union|Input|instance|str|int|float)\b|[a-z]\.\d"


@pytest.mark.parametrize("config", [Config, GridConfig, ItemSpec])
def test_no_message_has_words_of_the_library_that_checks(config: type[BaseModel]) -> None:
    checked = 0
    for path in (each for each in key_paths(config) if not each.startswith("position.")):
        for wrong in WRONG:
            document: Any = wrong
            for key in reversed(path.split(".")):
                document = {key: document}
            for several in (document, _listed(document)) if config is not Config else (document,):
                try:
                    config.model_validate(several)
                except ValidationError as error:
                    for message in messages(error, config, several):
                        said = re.split(", got|did you mean| \\(known", message)[0]
                        assert not re.search(INTERNAL, said), message
                        checked += 1
    assert checked > 400


def _listed(document: Any) -> Any:
    """Put the first section into a list, as tables are, and the next into a mapping by names."""
    [(key, below)] = document.items()
    return (
        {key: [{name: {"a name": x} for name, x in below.items()}]}
        if isinstance(below, dict)
        else {}
    )


@pytest.mark.parametrize(
    ("document", "said"),
    [
        (
            {"tables": [{"columns": {"BLEU": {"split": "dev"}}}]},
            "tables, entry 1, columns.BLEU.split: expected 'valid', 'test', 'train' or"
            " 'each set', got 'dev'",
        ),
        (
            {"tables": [{}, {"columns": 3}]},
            "tables, entry 2, columns: expected a section of settings, got 3",
        ),
        ({"grid": 3}, "grid: expected text or a section of settings, got 3"),
        ({"tables": [{"titel": "x"}]}, "tables, entry 1, titel: unknown key; did you mean"),
    ],
)
def test_a_place_in_a_list_is_counted_from_1(document: Any, said: str) -> None:
    with pytest.raises(ValidationError) as raised:
        ItemSpec.model_validate(document)
    found = [*messages(raised.value, ItemSpec, document)]
    assert any(each.startswith(said) for each in found), found
