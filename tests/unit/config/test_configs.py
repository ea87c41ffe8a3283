"""The shipped configurations, files that extend others, and the pages that are generated."""

import runpy
from importlib import metadata
from pathlib import Path

import pytest

from shapeshift._system.errors import ShapeshiftError
from shapeshift.config import load_config
from shapeshift.data.config import Extrapolate, Interpolate, Vanilla
from shapeshift.positions import SCHEMES, Scheme
from shapeshift.study.catalogue import find_grid
from shapeshift.study.power import read_spreads, write_spreads
from shapeshift.training.config import Noam

ROOT = Path(__file__).parents[3]
SHIPPED = ROOT / "src" / "shapeshift" / "config" / "shipped"
CONFIGS = sorted((SHIPPED).glob("*.yaml"))
RECIPES = {
    "vanilla": (Vanilla(), (10, 20, 30, 40, 50, 60, 70, 80)),
    "extrapolate": (Extrapolate(max_length=50), (10, 20, 30, 40, 50, 60, 70, 80)),
    "interpolate": (Interpolate(num_joined=10), (150, 200, 250, 300, 350, 400)),
}
"""The SHAPE paper's recipes, and the ends of its length buckets."""


def write(path, **files):
    for name, text in files.items():
        (path / f"{name}.yaml").write_text(text, encoding="utf-8")
    return path / "run.yaml"


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_every_shipped_file_loads_and_resolves_to_one_that_extends_nothing(path, tmp_path):
    config = load_config(path)
    resolved = tmp_path / "config.yaml"
    resolved.write_text(config.to_yaml(tmp_path), encoding="utf-8")
    assert "extends" not in resolved.read_text(encoding="utf-8")
    assert load_config(resolved) == config
    assert load_config(path.stem) == config  # shipped configurations have names
    assert config.training.schedule.warmup_updates < config.training.max_updates


@pytest.mark.parametrize("position", ["ape", "rpe", "shape"])
@pytest.mark.parametrize("recipe", RECIPES)
def test_a_model_of_the_shape_paper_has_its_hyperparameters(recipe, position):
    """Kiyono et al. 2021, Tables 3 and 4, by the command lines in shape-paper.yaml."""
    chosen, buckets = RECIPES[recipe]
    overrides = [f"data.recipe={recipe}", f"position={position}"]
    if recipe == "interpolate":
        overrides.append(f"evaluation.length_buckets={[*buckets]}")
    config = load_config("shape-paper", overrides)
    assert (config.data.recipe, config.evaluation.length_buckets) == (chosen, buckets)
    assert config.position.scheme == SCHEMES[position]
    given = {"max_offset": 500} if position == "shape" else {}
    assert config.position.scheme.position_ids.options == given
    if position == "rpe":
        assert config.position.parts[0]["max_distance"] == 16
    training, model = config.training, config.model
    assert (model.size, model.dim, model.ff_dim, model.encoder_layers) == ("base", 512, 2048, 6)
    assert model.dropout == training.label_smoothing == 0.1
    assert (training.optimizer.name, training.optimizer.eps) == ("adam", 1e-8)
    assert training.optimizer.betas == (0.9, 0.98)
    assert training.schedule == Noam(factor=2, warmup_updates=8000)
    assert training.clip_norm is None
    assert training.batch.max_tokens * training.accumulation == 112_000
    assert (training.max_updates, training.checkpoint_every) == (200_000, 5000)
    assert training.average_checkpoints == 10
    assert (config.decoding.beam, config.decoding.length_penalty.name) == (4, "none")
    assert (config.data.subwords.algorithm, config.data.subwords.joint) == ("presplit", True)
    assert config.evaluation.detokenize == "moses"
    for split, years in (("valid", range(2010, 2014)), ("test", range(2014, 2017))):
        labels = [config.data.corpus.label(split, number) for number in range(len(years))]
        assert labels == [f"newstest{year}" for year in years]


def test_files_extend_in_a_chain_each_relative_to_its_own_folder(tmp_path):
    (tmp_path / "a").mkdir()
    write(
        tmp_path,
        base="training: {seed: 3, max_updates: 7, batch: {max_tokens: 9}}\nposition: shape\n"
        "evaluation: {length_buckets: [1, 2, 3]}",
    )
    write(tmp_path / "a", middle="extends: ../base.yaml\ntraining: {max_updates: 8}")
    path = write(
        tmp_path,
        run="extends: a/middle.yaml\nposition: nope\nevaluation: {length_buckets: [4]}\n"
        "training: {batch: {max_sentences: 2}}",
    )
    config = load_config(path, ["training.log_every=5"])
    assert load_config(write(tmp_path, run="extends: multi30k")) == load_config("multi30k")
    training = config.training
    assert (training.seed, training.max_updates, training.log_every) == (3, 8, 5)
    assert (training.batch.max_tokens, training.batch.max_sentences) == (9, 2)
    assert config.evaluation.length_buckets == (4,)
    assert config.position.scheme == Scheme()


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"run": "extends: base.yaml"}, r"run\.yaml:1: extends: no such file '.*base\.yaml'"),
        (
            {"run": "extends: shrot"},
            r"run\.yaml:1: extends: no configuration 'shrot'; did you",
        ),
        ({"run": "extends: [a, b]"}, r"run\.yaml:1: extends: expected the path of one file, got"),
        (
            {"run": "extends: a.yaml", "a": "extends: b.yaml", "b": "extends: run.yaml"},
            r"run\.yaml: extends itself",
        ),
        ({"run": "extends: a.yaml", "a": "x:\n  - [1"}, r"a\.yaml:\d+: not YAML"),
        ({"run": "extends: a.yaml", "a": "[model]"}, r"a\.yaml: expected .* for all defaults"),
    ],
)
def test_what_cannot_be_extended_is_named(files, message, tmp_path):
    with pytest.raises(ShapeshiftError, match=message):
        load_config(write(tmp_path, **files))
    with pytest.raises(ShapeshiftError, match=r"'multi30'; did you mean 'multi30k'\?.* demo, "):
        load_config("multi30")


@pytest.mark.parametrize("page", ["commands", "configuration", "positions"])
def test_a_generated_page_is_fresh(page):
    locked = f"typer=={metadata.version('typer')} " in (ROOT / "requirements.lock").read_text()
    if page == "commands" and not locked:
        pytest.skip("another version of typer words its help otherwise")
    made = runpy.run_path(str(ROOT / "docs" / f"generate_{page}.py"))["document"]()
    written = (ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8")
    assert written == made, f"run: python docs/generate_{page}.py"


@pytest.mark.long
def test_the_page_of_results_is_made_of_the_runs_that_are_kept(tmp_path):
    script = runpy.run_path(str(ROOT / "docs" / "generate_results.py"))
    script["unpack"](tmp_path)
    documents = script["make"](tmp_path)
    assert documents
    written = (ROOT / "docs" / "results.md").read_text(encoding="utf-8")
    assert written == script["page"](documents, tmp_path), "run: python docs/generate_results.py"
    write_spreads(script["spreads"](documents), tmp_path / "spread.csv")
    assert read_spreads(tmp_path / "spread.csv") == read_spreads()


def test_nhk_scores_english_japanese_in_words_and_all_else_as_ever():
    """Miyazaki et al. 2024, footnote 3."""
    for name in ("nhk:table1", "nhk:table3"):
        runs = find_grid(name).runs("paper")
        found = {(planned.axes["languages"], planned.config.bleu_tokenizer) for planned in runs}
        wanted = {"fr-de": "13a", "de-fr": "13a", "ja-en": "13a", "en-ja": "ja-mecab"}
        assert found == set(wanted.items())
