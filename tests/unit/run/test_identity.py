"""The name of a run: what its result depends on, and nothing else."""

from dataclasses import fields, replace
from pathlib import Path

import pytest

from shapeshift.config import Config, parse_config
from shapeshift.config.config import parse_layers
from shapeshift.config.files import Layer
from shapeshift.model.position_config import spelled_out
from shapeshift.positions import Part, Scheme
from shapeshift.run.identity import how_to_score, identity_fields, run_key

DOCUMENT = {
    "model": {"size": "tiny"},
    "training": {"max_updates": 7, "seed": 3},
    "position": "shape",
}


def changed(*overrides):
    """Return the configuration with these settings, each laid over the one before."""
    return parse_layers([Layer(DOCUMENT), *(Layer([each]) for each in overrides)])


def key(*overrides):
    return run_key(changed(*overrides))


SHAPE = "position={name: mine, position_ids: {name: shifted, max_offset: 500},"
SHAPE += " parts: [{stacks: both, kind: sinusoidal, base: 10000.0}]}"
WIDTHS = "model={dim: 128, num_heads: 4, ff_dim: 512, encoder_layers: 2, decoder_layers: 2}"
BLEU = "training.validate_metrics=[bleu]"
COMET = "training.best_metric=comet"
MOSES = "evaluation.detokenize=moses"
FILES = "data.corpus={corpus: files, source: en, target: ja, train: [a], valid: [a], test: [a]}"
ARCHIVE = f"{{url: https://example.org/a, file: a.zip, hash: 'md5:{'0' * 32}'}}"
START = "training.init_from=runs/a"
T5 = "position={parts: [{kind: t5}]}"
NO_POSITION = "position={parts: [{kind: none, place: cross, layers: 1}]}"
SAME = [
    ([], "training.log_every=3"),
    ([], "decoding.max_tokens=77"),
    ([], "evaluation.length_buckets=[3]"),
    ([], SHAPE),
    ([], WIDTHS),
    ([BLEU], "evaluation.tokenize=13a"),  # `auto` stands for it
    (["training.validate_metrics=[chrf]"], "evaluation.tokenize=char"),  # which is of BLEU alone
    ([FILES], MOSES),
    ([FILES], "data.corpus.root=there"),
    ([FILES], f"data.corpus.archive={ARCHIVE}"),
    ([NO_POSITION], "position=nope"),
    ([T5], T5.replace("t5", "t5, place: self, share_layers: true")),  # the defaults
    ([START], "training.init_from=./runs/../runs/a"),
    ([START], f"training.init_from={Path('runs/a').absolute()}"),
]
OTHER = [
    ([], "training.seed=4"),
    ([], "decoding.beam=9"),
    ([], "position.position_ids.max_offset=40"),
    ([], "data.corpus.num_train=99"),
    # What validation measures stands in the log, and may choose the final model.
    ([], BLEU),
    ([], COMET),
    ([COMET], "evaluation.comet_model=other"),
    ([BLEU], "evaluation.tokenize=char"),
    ([FILES, BLEU], MOSES),
    ([FILES], "data.corpus.test=[b]"),
    ([START], "training.init_from=runs/b"),
]


@pytest.mark.parametrize(("shared", "override"), SAME + OTHER)
def test_the_name_depends_on_what_changes_results_alone(shared, override):
    same = key(*shared, override) == key(*shared)
    assert same == ((shared, override) in SAME)


def test_the_tokenizer_is_that_of_the_language():
    ours, japanese, other = (
        how_to_score(changed(FILES, f"evaluation.tokenize={name}"))
        for name in ("auto", "ja-mecab", "13a")
    )
    assert ours == japanese != other


OTHER_PARTS = {
    "kind": "rotary", "place": "cross", "stacks": "decoder", "layers": 1,
    "options": {"num_positions": 512}, "share_layers": False,
}  # fmt: skip


@pytest.mark.parametrize("field", [field.name for field in fields(Part)])
def test_each_field_of_a_part_is_in_the_name(field):
    """A study of two settings would train one and show it twice."""
    part = Part("tupe", "self")
    other = replace(part, **{field: OTHER_PARTS[field]})

    def key_of(part):
        position = spelled_out("mine", Scheme(parts=(part,)))
        return run_key(parse_config({**DOCUMENT, "position": position}))

    assert key_of(other) != key_of(part)
    assert str(other) != str(part)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("2", "[1, 0]"),
        ("{except: [3]}", "[0, 1, 2]"),
        ("{every: 2}", "{except: {every: 2, offset: 1}}"),
        ("[1]", "{every: 3, offset: 1}"),
    ],
)
def test_selections_of_the_same_layers_are_one(one, other):
    def key_of(layers, depth=4):
        document = {"model": {"size": "tiny", "encoder_layers": 4, "decoder_layers": depth}}
        part = f"position={{parts: [{{kind: rotary, layers: {layers}}}]}}"
        return run_key(parse_config(document, [part]))

    assert key_of(one) == key_of(other) != key_of("[2]")
    assert key_of("{every: 3}") == key_of("[0, 3]")
    assert key_of("{every: 3}", depth=8) == key_of("{every: 3, offset: 0}", depth=8)
    assert key_of("{every: 3}", depth=8) != key_of("[0, 3]", depth=8)


def test_a_function_of_position_ids_counts_with_its_source(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    sources = []
    for number in (1, 2):
        (tmp_path / f"coupling{number}.py").write_text(f"def ids(x):\n    return x * {number}\n")
        ids = {"name": "coupled", "function": f"coupling{number}:ids"}
        position = {"position_ids": ids, "parts": [{"kind": "sinusoidal"}]}
        config = parse_config({**DOCUMENT, "position": position})
        name, _, source = identity_fields(config)["position"]["position_ids"]
        assert name == "coupled"
        sources.append(source)
    assert sources[0] != sources[1]


def test_a_name_is_for_good_whatever_the_order_of_keys():
    """If this fails, everybody's finished runs are lost: they would be trained again."""
    other_order = dict(reversed(DOCUMENT.items()))
    assert run_key(parse_config(other_order)) == key() == "80023a4fab609196"


def test_a_setting_that_is_new_and_has_its_default_does_not_rename_old_runs(monkeypatch):
    before = key()
    dump = Config.model_dump

    def with_new_setting(self, **options):
        document = dump(self, **options)
        document["training"]["new_setting"] = 1
        return document

    monkeypatch.setattr(Config, "model_dump", with_new_setting)
    monkeypatch.setattr(
        "shapeshift.run.identity._default_fields", lambda: identity_fields(Config())
    )
    assert key() == before
