"""The shipped configurations, files that extend others, and the pages that are generated."""

import runpy
from importlib import metadata
from pathlib import Path

import pytest

from shapeshift._system.errors import ShapeshiftError
from shapeshift.config import load_config
from shapeshift.data.config import Extrapolate, Interpolate, LengthSlice, Vanilla
from shapeshift.data.corpora import labels
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
        assert labels(config.data.corpus, split) == [f"newstest{year}" for year in years]


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
        ({"run": "extends: shrot"}, r"run\.yaml:1: extends: no configuration 'shrot'; did you"),
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


def test_a_shipped_file_that_there_is_not_is_named():
    with pytest.raises(ShapeshiftError, match=r"'multi30'; did you mean 'multi30k'\?.* demo, "):
        load_config("multi30")
    with pytest.raises(ShapeshiftError, match="no configuration ''"):
        load_config("")


@pytest.mark.parametrize("page", ["commands", "configuration", "positions"])
def test_a_generated_page_is_fresh(page):
    locked = f"typer=={metadata.version('typer')} " in (ROOT / "requirements.lock").read_text()
    if page == "commands" and not locked:
        pytest.skip("another version of typer words its help otherwise")
    made = runpy.run_path(str(ROOT / "docs" / f"generate_{page}.py"))["document"]()
    written = (ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8")
    assert written == made, f"run: python docs/generate_{page}.py"


@pytest.mark.slow
def test_the_page_of_results_is_made_of_the_runs_that_are_kept(tmp_path, monkeypatch):
    # Drawing takes most of the time, and the page has no drawing of its own.
    monkeypatch.setattr("shapeshift.study.write.save_figure", lambda figure, stem: [])
    script = runpy.run_path(str(ROOT / "docs" / "generate_results.py"))
    script["unpack"](tmp_path)
    documents = script["make"](tmp_path)
    assert documents
    written = (ROOT / "docs" / "results.md").read_text(encoding="utf-8")
    assert written == script["page"](documents, tmp_path), "run: python docs/generate_results.py"
    write_spreads(script["spreads"](documents), tmp_path / "spread.csv")
    assert read_spreads(tmp_path / "spread.csv") == read_spreads()


def test_the_models_of_shaw_et_al_have_their_hyperparameters():
    """Shaw et al. 2018, section 4.1 and Tables 1 to 3."""
    sizes = {"base": (512, 8, 1024, 100_000, 1), "big": (1024, 16, 4096, 300_000, 20)}
    for name in ("table1", "speed", "table2", "table3"):
        for planned in find_grid(f"shaw:{name}").runs("paper"):
            config, size = planned.config, planned.axes.get("model", "base")
            french = planned.axes.get("languages") == "en-fr"
            model, training = config.model, config.training
            found = model.dim, model.num_heads, model.ff_dim
            assert (*found, training.max_updates, training.average_checkpoints) == sizes[size]
            assert (model.encoder_layers, model.decoder_layers) == (6, 6)
            assert model.dropout == (0.3 if size == "big" and not french else 0.1)
            for part in config.position.parts:
                if part["kind"] == "shaw":
                    assert part.get("per_head", False) == (size == "base")
                    k = int(planned.axes.get("k", 16 if size == "base" else 8))
                    assert part.get("max_distance", 16) == k
            optimizer = training.optimizer
            assert (optimizer.name, optimizer.betas, optimizer.eps) == ("adam", (0.9, 0.98), 1e-9)
            assert training.schedule == Noam(factor=1, warmup_updates=4000)
            assert (training.label_smoothing, training.batch.max_tokens) == (0.1, 4096)
            assert training.accumulation == 8
            assert (config.decoding.beam, config.decoding.length_penalty.alpha) == (4, 0.6)
            assert config.data.subwords.vocab_size == 32_768
            corpus, target = config.data.corpus, "fr" if french else "de"
            assert (corpus.source, corpus.target, corpus.subset) == ("en", target, f"{target}-en")
            assert (*corpus.valid, *corpus.test) == ("sacrebleu:wmt13", "sacrebleu:wmt14/full")
    distances = [int(planned.axes["k"]) for planned in find_grid("shaw:table2").runs("paper")]
    assert distances == [0, 1, 2, 4, 16, 64, 256]


def test_the_models_of_miyazaki_et_al_have_their_hyperparameters():
    """Miyazaki et al. 2024, sections 3.1 and 3.4, Tables 2 to 6, footnote 3."""
    slices = {
        "all": (None, Vanilla()),
        "short": (8_052_523, LengthSlice(max_length=20)),
        "middle": (2_560_810, LengthSlice(min_length=40, max_length=60)),
        "long": (394_505, LengthSlice(min_length=81)),
    }
    for name in ("table1", "table2", "table3", "figure3", "table5", "table6"):
        runs = find_grid(f"nhk:{name}").runs("paper")
        assert {planned.seed for planned in runs} == ({1} if name == "table1" else {1, 2, 3})
        for planned in runs:
            config, axes = planned.config, planned.axes
            training = config.training
            assert (training.optimizer.name, training.schedule.name) == ("radam", "cosine")
            assert (training.schedule.peak, training.schedule.warmup_updates) == (5e-4, 5000)
            assert (training.batch.max_sentences, training.accumulation) == (256, 1)
            assert (training.final_weights, training.best_metric) == ("best", "comet")
            assert config.decoding.beam == 10
            assert config.evaluation.comet_model == "Unbabel/wmt20-comet-da"
            assert config.data.subwords.vocab_size == 16_000
            depth = 1 if name in ("table2", "table5") else 6
            assert (config.model.encoder_layers, config.model.decoder_layers) == (depth, depth)
            source, target = axes.get("languages", "fr-de").split("-")
            corpus, tenth = config.data.corpus, "-tenth" if name in ("table5", "table6") else ""
            text = "fr-de/train" if "fr" in (source, target) else "ja-en/train"
            assert (corpus.source, corpus.target, *corpus.train) == (source, target, text + tenth)
            assert (*corpus.valid, *corpus.test) == ("sacrebleu:wmt21", "sacrebleu:wmt22")
            assert config.bleu_tokenizer == ("ja-mecab" if target == "ja" else "13a")
            lengths = axes.get("lengths", "all")
            assert config.data.recipe == slices[lengths][1]
            num_pairs = 1_797_560 if tenth else slices[lengths][0]
            updates = 10 * num_pairs / 256 if num_pairs else 650_000  # ten epochs
            assert training.max_updates == pytest.approx(updates, rel=0.01)
            assert len(range(0, training.max_updates, training.checkpoint_every)) in (13, 14)
    places = {planned.axes["positions_in"] for planned in find_grid("nhk:table5").runs("paper")}
    assert places == {"none", "q", "k", "v", "qk", "kv", "qv", "qkv"}
    layers = {
        planned.axes["layers"]: [part["layers"] for part in planned.config.position.parts]
        for planned in find_grid("nhk:table6").runs("paper")
        if planned.axes["position"] == "relative-cross-pe"
    }
    assert layers == {str(n): [n, n] for n in range(1, 7)}
