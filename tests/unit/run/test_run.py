"""A run's folder: made once, continued with the same settings, all that translating needs."""

import json
import shutil
import sys
from types import SimpleNamespace

import pytest
import sacrebleu
import yaml
from sacrebleu.tokenizers import tokenizer_ja_mecab

from shapeshift._system.errors import ShapeshiftError
from shapeshift.config import Config, load_config
from shapeshift.data.prepared import Prepared
from shapeshift.evaluation import comet
from shapeshift.evaluation.scores import Scores
from shapeshift.run.folder import Run, prepared_directory
from shapeshift.run.measures import translate_and_score
from shapeshift.run.train import train
from shapeshift.training.log import read_log
from shapeshift.training.manifest import MODEL
from shapeshift.training.observer import Observer

from ..conftest import snapshot

BLEU = "training.validate_metrics=[bleu]"
COMET = "training.best_metric=comet"


@pytest.fixture(scope="module")
def trained(make_config, tmp_path_factory):
    """A finished run; tests only read it, or copy it."""
    folder = tmp_path_factory.mktemp("trained")
    stages, validations, observer = set(), [], Observer()
    observer.preparing = lambda stage, done, total: stages.add(stage)
    observer.validated = lambda update, values: validations.append((update, values))
    prepared = folder / "prepared"
    run = train(make_config(BLEU), folder / "run", observer, prepared_root=prepared)
    return SimpleNamespace(run=run, prepared=prepared, validations=validations, stages=stages)


@pytest.fixture
def copied(trained, tmp_path):
    """A copy of the run alone, without the prepared data."""
    shutil.copytree(trained.run.directory, tmp_path / "copied")
    return Run(tmp_path / "copied")


def begun(directory, config):
    """A run that has begun: it has a checkpoint."""
    run = Run.create(directory, config)
    run.checkpoints.path(15).mkdir(parents=True)
    return run


def test_the_folder_has_everything(trained):
    names = {path.name for path in trained.run.directory.iterdir()}
    assert names == {
        "config.yaml", "data.json", "subwords", "checkpoints", "average.safetensors",
        "log.jsonl", "machine.json", "tensorboard", "SHA256SUMS", "lock",
    }  # fmt: skip
    assert {"train subwords", "encode train", "encode valid", "encode test"} <= trained.stages
    report = json.loads((trained.run.directory / "data.json").read_text(encoding="utf-8"))
    assert report["splits"]["train"]["built"] == 120
    path = trained.run.directory / "config.yaml"
    assert load_config(path) == trained.run.config
    document = yaml.safe_load(path.read_text(encoding="utf-8"))
    assert document["training"]["optimizer"]["eps"] == 1e-8  # a default
    assert document.keys() == Config.model_fields.keys()


def test_bleu_of_the_validation_set_is_in_the_log(trained):
    lines = [x for x in read_log(trained.run.directory / "log.jsonl") if "valid_loss" in x]
    assert [line["update"] for line in lines] == [15, 30, 45]
    for line, (update, values) in zip(lines, trained.validations, strict=True):
        assert line.items() >= {"update": update, **values}.items()
        assert 0 <= values["valid_bleu"] <= 100


def test_weights_by_name_and_by_number(trained, copied):
    run = trained.run
    assert run.weights() == run.weights("average") == run.directory / "average.safetensors"
    assert run.weights("last") == run.weights("45") == run.checkpoints.path(45) / MODEL
    assert run.weights("15") == run.checkpoints.path(15) / MODEL
    losses = {update: values["valid_loss"] for update, values in trained.validations}
    best = min(losses, key=losses.get)
    assert run.weights("best") == run.checkpoints.path(best) / MODEL
    for which in ("16", "newest", "015", ""):
        with pytest.raises(
            ShapeshiftError, match=r"or an update; checkpoints: 15, 30, 45.; training is finished"
        ):
            run.weights(which)
    (copied.directory / "average.safetensors").unlink()
    with pytest.raises(
        ShapeshiftError, match=r"no weights .average.*or .shapeshift translate --checkpoint last"
    ):
        copied.weights()
    shutil.rmtree(copied.directory / "checkpoints")
    with pytest.raises(ShapeshiftError, match=r"copied: has no weights .last.*checkpoints: none"):
        copied.weights("last")


def test_translating_needs_the_folder_alone(copied, trained, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # no prepared/ here
    lines = ["abc de", "", "f", " ", "zzz ünknown"]
    texts = list(copied.translator().translate(lines))
    assert texts == list(trained.run.translator().translate(lines))
    assert len(texts) == 5
    assert texts[1] == texts[3] == ""
    assert any(texts)


def test_the_test_set_is_translated_scored_and_kept(trained, copied):
    counted = []
    scores = translate_and_score(
        copied,
        prepared_root=trained.prepared,
        on_translate=lambda done, total: counted.append((done, total)),
    )
    assert counted == [(done, 21) for done in range(22)]
    results = copied.directory / "results"
    assert Scores.load(results / "test.average.json") == scores

    hypotheses = (results / "test.average.txt").read_text(encoding="utf-8").split("\n")[:-1]
    data = Prepared(prepared_directory(copied.config.data, trained.prepared))
    sources, references = data.text("test")
    assert hypotheses == copied.translate(sources)
    assert scores.scores[0].value == sacrebleu.corpus_bleu(hypotheses, [references]).score
    assert scores.num_segments == sum(x.num_segments for x in scores.by_length) == 21
    assert [(x.low, x.high) for x in scores.by_length] == [(0, 4), (4, 8), (8, None)]

    with pytest.raises(ShapeshiftError, match=r"prepared\.json"):
        translate_and_score(copied, prepared_root=copied.directory / "nothing")


COSINE = "training.schedule={name: cosine, warmup_updates: 5, peak: 0.01}"


@pytest.mark.parametrize(
    ("shared", "overrides", "named"),
    [
        ([], ["training.seed=2"], "training.seed"),
        ([], ["model.dim=64", "position=ape"], "model.dim, position.position_ids"),
        ([], ["data.subwords.vocab_size=41"], "data.subwords.vocab_size"),
        ([COSINE], ["training.max_updates=50"], "training.max_updates"),  # where it ends
        # Scores of another kind do not compare with those that the log holds.
        ([BLEU], ["decoding.beam=2"], "decoding.beam"),
        ([BLEU], ["evaluation.tokenize=char"], "evaluation.tokenize"),
        ([COMET], ["evaluation.comet_model=two"], "evaluation.comet_model"),
    ],
)
def test_other_settings_are_refused_and_named(make_config, tmp_path, shared, overrides, named):
    begun(tmp_path / "run", make_config(*shared))
    before = snapshot(tmp_path / "run")
    with pytest.raises(ShapeshiftError, match=f"run: holds a run with another {named}"):
        Run.create(tmp_path / "run", make_config(*shared, *overrides))
    assert snapshot(tmp_path / "run") == before


@pytest.mark.parametrize(
    ("shared", "override"),
    [
        ([], "training.max_updates=99"),
        ([], "training.log_every=7"),
        ([], "decoding.length_penalty={name: none}"),
        ([], "evaluation.tokenize=char"),
        ([BLEU], "evaluation.tokenize=13a"),  # which `auto` stands for
        ([], "position={name: mine, position_ids: {name: shifted, max_offset: 500}}"),
    ],
)
def test_settings_that_do_not_change_training_may_change(make_config, tmp_path, shared, override):
    begun(tmp_path / "run", make_config(*shared))
    Run.create(tmp_path / "run", make_config(*shared, override))
    assert Run(tmp_path / "run").config == make_config(*shared, override)


def test_overrides_hold_for_one_opening(copied):
    run = Run(copied.directory, ["decoding.beam=1", "training.device=cpu"])
    assert run.config.decoding.beam == run.translator().runner.config.beam == 1
    assert Run(copied.directory).config.decoding.beam == 4
    with pytest.raises(
        ShapeshiftError, match=r"decoding\.beem: unknown key; did you mean 'decoding.beam'"
    ):
        Run(copied.directory, ["decoding.beem=1"])


def test_a_folder_that_is_no_run(make_config, tmp_path):
    folder = tmp_path / "thesis"
    folder.mkdir()
    with pytest.raises(ShapeshiftError, match=r"thesis: not a run"):
        Run(folder)
    with pytest.raises(ShapeshiftError, match=r"absent: not a run"):
        Run(tmp_path / "absent")
    (folder / "chapter1.tex").write_text("text", encoding="utf-8")
    with pytest.raises(ShapeshiftError, match=r"thesis: holds something that is not a run"):
        Run.create(folder, make_config())
    assert [x.name for x in folder.iterdir()] == ["chapter1.tex"]


ABSENT = "data.corpus={corpus: files, root: absent, source: en, target: de,"
ABSENT += " train: [a], valid: [b], test: [c]}"


@pytest.mark.parametrize(
    ("settings", "module", "message"),
    [
        (["training.device=cuda:99"], None, "use auto or cpu"),
        ([COMET, "evaluation.comet_model=none"], "comet", r"pip install '\.\[comet\]'"),
        (["evaluation.detokenize=moses", ABSENT], "sacremoses", "needs sacremoses"),
        (["evaluation.tokenize=ja-mecab"], "MeCab", r"pip install '\.\[ja\]'"),
    ],
)
def test_what_a_run_needs_is_looked_for_before_anything_is_made(
    make_config, tmp_path, monkeypatch, settings, module, message
):
    monkeypatch.setattr(tokenizer_ja_mecab, "MeCab", None)
    if module:
        monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ShapeshiftError, match=message):
        train(
            make_config(*settings),
            tmp_path / "run",
            Observer(),
            prepared_root=tmp_path / "prepared",
        )
    assert list(tmp_path.iterdir()) == []


def test_scores_have_the_run_s_tokenizer_and_model_of_comet(trained, copied, monkeypatch):
    asked = []

    def score(sources, hypotheses, references, model):
        asked.append((model, list(sources), list(references)))
        return 42.0, "a signature", (1.0,) * len(hypotheses)

    monkeypatch.setattr(comet, "score", score)
    settings = ("metrics=[bleu, comet]", "comet_model=mine", "tokenize=char")
    run = Run(copied.directory, [f"evaluation.{setting}" for setting in settings])
    scores = translate_and_score(run, "valid", prepared_root=trained.prepared)
    data = Prepared(prepared_directory(run.config.data, trained.prepared))
    assert asked == [("mine", *data.text("valid"))]
    assert scores.scores[1].value == 42.0
    assert "|tok:char|" in scores.scores[0].signature
    assert all("|tok:char|" in x.score.signature for x in scores.by_length if x.score)
