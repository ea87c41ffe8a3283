"""A relative path in a file starts in the folder of the file, on the command line in the current
folder; and a run's `config.yaml` means the same paths from anywhere."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from shapeshift._system.errors import ShapeshiftError
from shapeshift.config import Config, load_config, parse_config
from shapeshift.study.grid import Grid

HUB = {"corpus": "hub", "repo": "texts", "source": "en", "target": "de"}
FILES = {"corpus": "files", "source": "en", "target": "de"} | {
    split: [split] for split in ("train", "valid", "test")
}
PATHS: dict[str, dict[str, Any]] = {
    "data.corpus.root": {"data": {"corpus": {**FILES, "root": "texts"}}},
    "data.corpus.repo": {"data": {"corpus": HUB}},
    "data.subwords.models": {"data": {"subwords": {"models": "texts"}}},
    "training.init_from": {"training": {"init_from": "texts"}},
    "evaluation.comet_model": {"evaluation": {"comet_model": "texts"}},
}
"""Each setting that is a path → a configuration in which it is `texts`."""


def value(config: Config, key: str) -> str:
    node: Any = config
    for step in key.split("."):
        node = getattr(node, step)
    return str(node)


@pytest.fixture(autouse=True)
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for folder in ("work/sub/texts", "work/texts", "elsewhere"):
        (tmp_path / folder).mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "work")


@pytest.mark.parametrize("key", PATHS)
def test_a_path_is_relative_to_its_file_or_to_where_it_is_typed(key: str, tmp_path: Path) -> None:
    for folder, found in (("sub", "sub/texts"), ("../elsewhere", str(tmp_path / "elsewhere"))):
        path = Path(folder) / "mine.yaml"
        document = yaml.safe_dump(PATHS[key]).replace("texts", "." if "else" in folder else "texts")
        path.write_text(document)
        assert value(load_config(path), key) == found
        (path.with_name("over.yaml")).write_text("extends: mine.yaml\nposition: rope\n")
        assert value(load_config(path.with_name("over.yaml")), key) == found
        assert value(load_config(path, [f"{key}=texts"]), key) == "texts"
        for same in (f"{key}={tmp_path}/texts", f"{key}='~/texts'"):
            given = same.partition("=")[2].strip("'")
            kept = value(load_config(path, [same]), key)
            assert kept in (given, str(Path(given).expanduser()))


@pytest.mark.parametrize("key", PATHS)
def test_a_path_in_the_overrides_of_a_study_is_relative_to_the_study(key: str) -> None:
    base = {"data": {"corpus": HUB if key.endswith("repo") else FILES}}
    axes = {"x": {"one": [f"{key}=texts"]}}
    Path("sub/study.yaml").write_text(yaml.safe_dump({"base": base, "axes": axes}))
    (planned,) = Grid("sub/study.yaml").runs("full")
    assert value(planned.config, key) == "sub/texts"
    (planned,) = Grid("sub/study.yaml").runs("full", ["training.init_from=texts"])
    assert str(planned.config.training.init_from) == "texts"
    if "data.corpus" not in key:  # the text of a corpus that a study gives is next to the study
        assert str(planned.config.data.corpus.root) == "sub"


def test_text_is_by_default_next_to_the_file_that_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    path = Path("sub/mine.yaml")
    path.write_text(yaml.safe_dump({"data": {"corpus": FILES}}))
    assert str(load_config(path).data.corpus.root) == "sub"
    assert str(load_config("multi30k").data.corpus.root) == "."
    assert str(load_config(path, ["data.corpus=wmt22-fr-de"]).data.corpus.root) == "corpora/wmt22"
    monkeypatch.chdir("sub")
    assert str(load_config("mine.yaml").data.corpus.root) == "."


def test_the_folder_of_a_file_is_no_root_of_another_corpus() -> None:
    Path("sub/mine.yaml").write_text(yaml.safe_dump({"data": {"corpus": FILES}}))
    Path("sub/hub.yaml").write_text("extends: mine.yaml\ndata: {corpus: {corpus: grammar}}")
    with pytest.raises(ShapeshiftError) as raised:
        load_config("sub/hub.yaml")
    assert "corpus.root" not in str(raised.value)
    assert str(load_config("sub/mine.yaml", ["data.corpus.root=x"]).data.corpus.root) == "x"


def test_paths_through_a_symbolic_link_lead_where_the_system_says(tmp_path: Path) -> None:
    (tmp_path / "far/runs").mkdir(parents=True)
    (tmp_path / "far/texts").mkdir()
    Path("texts").mkdir(exist_ok=True)
    Path("link").symlink_to(tmp_path / "far/runs")
    document = {"data": {"corpus": {**FILES, "root": "link/../texts"}}}
    config = parse_config(document)
    assert config.data.corpus.root.resolve() == tmp_path / "far/texts"
    inside = parse_config({"data": {"corpus": {**FILES, "root": "texts"}}})
    Path("link/config.yaml").write_text(inside.to_yaml("link"))
    assert load_config("link/config.yaml") == inside


def test_a_name_that_no_folder_has_stays_a_name() -> None:
    path = Path("sub/mine.yaml")
    path.write_text(yaml.safe_dump({"data": {"corpus": {**HUB, "repo": "wmt/wmt14"}}}))
    config = load_config(path, ["evaluation.comet_model=Unbabel/other"])
    saved = yaml.safe_load(config.to_yaml("sub"))
    for found in (config.model_dump(), saved):
        assert found["data"]["corpus"]["repo"] == "wmt/wmt14"
        assert found["evaluation"]["comet_model"] == "Unbabel/other"


@pytest.mark.parametrize("key", PATHS)
def test_a_saved_configuration_means_the_same_paths(
    key: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = parse_config(PATHS[key])
    run = Path("runs/a")
    run.mkdir(parents=True)
    (run / "config.yaml").write_text(config.to_yaml(run))
    assert load_config(run / "config.yaml") == config
    # From elsewhere, and after the whole project has moved.
    (tmp_path / "work").rename(tmp_path / "moved")
    monkeypatch.chdir(tmp_path / "elsewhere")
    moved = load_config("../moved/runs/a/config.yaml")
    assert value(moved, key) == str(tmp_path / "moved" / "texts")
