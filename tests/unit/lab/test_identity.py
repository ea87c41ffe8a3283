"""The name of a cell: what its result depends on, and nothing else."""

import pytest

from shapeshift.config import Config, parse_config
from shapeshift.integrity import digest
from shapeshift.lab.identity import cell_key, how_to_score, identity_fields

DOCUMENT = {
    "model": {"size": "tiny"},
    "training": {"max_updates": 7, "seed": 3},
    "position": "shape",
}


def key(*overrides):
    return cell_key(parse_config(DOCUMENT, overrides))


SHAPE = "position={name: mine, position_ids: {name: shifted, max_offset: 500},"
SHAPE += " parts: [{stacks: both, kind: sinusoidal, base: 10000.0}]}"
WIDTHS = "model={dim: 128, num_heads: 4, ff_dim: 512, encoder_layers: 2, decoder_layers: 2}"
BLEU = "training.validate_metrics=bleu"
COMET = "training.best_metric=comet"
SAME = [
    ([], "training.log_every=3"),
    ([], "training.device=cpu"),
    ([], "training.keep_checkpoints=12"),
    ([], "decoding.max_tokens=77"),
    ([], "evaluation.length_buckets=[3]"),
    ([], "evaluation.comet_model=other"),
    ([], "evaluation.detokenize=moses"),
    ([], SHAPE),
    ([], WIDTHS),
    ([BLEU], "evaluation.tokenize=13a"),  # `auto` stands for it
]
OTHER = [
    ([], "training.seed=4"),
    ([], "training.max_updates=8"),
    ([], "training.average_checkpoints=2"),
    ([], "training.batch.max_tokens=77"),
    ([], "model.dim=64"),
    ([], "decoding.beam=9"),
    ([], "position.position_ids.max_offset=40"),
    ([], "position=rpe"),
    ([], "data.dataset.name=extrapolate"),
    ([], "data.corpus.num_train=99"),
    # What validation measures stands in the log, and may choose the final model.
    ([], BLEU),
    ([], COMET),
    ([COMET], "evaluation.comet_model=other"),
    ([BLEU], "evaluation.detokenize=moses"),
]


@pytest.mark.parametrize(("shared", "override"), SAME)
def test_what_does_not_change_results_does_not_change_the_name(shared, override):
    assert key(*shared, override) == key(*shared)


@pytest.mark.parametrize(("shared", "override"), OTHER)
def test_what_changes_results_changes_the_name(shared, override):
    assert key(*shared, override) != key(*shared)


FILES = {"corpus": "files", "source": "en", "target": "ja"}
FILES |= {split: ["a"] for split in ("train", "valid", "test")}


def of_files(*overrides, **settings):
    return parse_config({**DOCUMENT, "data": {"corpus": FILES | settings}}, overrides)


def test_a_corpus_may_move_but_not_change_its_files():
    assert cell_key(of_files(root="here")) == cell_key(of_files(root="there"))
    assert cell_key(of_files(test=["b"])) != cell_key(of_files())


def test_a_part_without_a_position_is_no_part():
    nothing = {"parts": [{"kind": "none", "place": "cross", "layers": 1}]}
    assert cell_key(parse_config({**DOCUMENT, "position": nothing})) == key("position=nope")


def test_a_name_is_for_good_whatever_the_order_of_keys():
    """If this fails, everybody's finished cells are lost: they would be trained again."""
    other_order = dict(reversed(DOCUMENT.items()))
    assert cell_key(parse_config(other_order)) == key() == "80023a4fab609196"


def test_a_setting_that_is_new_and_has_its_default_does_not_rename_old_runs(monkeypatch):
    before = key()
    dump = Config.model_dump

    def with_new_setting(self, **options):
        document = dump(self, **options)
        document["training"]["new_setting"] = 1
        return document

    monkeypatch.setattr(Config, "model_dump", with_new_setting)
    monkeypatch.setattr(
        "shapeshift.lab.identity._default_fields", lambda: identity_fields(Config())
    )
    assert key() == before


def test_how_bleu_splits_text_counts_where_it_is_not_13a():
    """`auto` is what it stands for; scores that were 13a's before there was a choice stay."""
    german = parse_config(DOCUMENT)
    assert digest(how_to_score(german))[:8] == "7e608796"
    explicit = parse_config(DOCUMENT, ["evaluation.tokenize=13a"])
    assert how_to_score(explicit) == how_to_score(german)
    assert how_to_score(of_files("evaluation.tokenize=13a")) == how_to_score(german)
    assert how_to_score(of_files()) != how_to_score(german)
    assert how_to_score(of_files("evaluation.tokenize=ja-mecab")) == how_to_score(of_files())


@pytest.mark.parametrize(("metric", "counts"), [("[]", False), ("chrf", False), ("bleu", True)])
def test_bleu_s_tokenizer_is_in_the_name_where_validation_has_bleu(metric, counts):
    shared = f"training.validate_metrics={metric}"
    other = cell_key(of_files(shared, "evaluation.tokenize=13a"))
    assert (cell_key(of_files(shared)) != other) == counts
