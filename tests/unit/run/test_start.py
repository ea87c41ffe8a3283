"""Runs that start from another one: what is kept, what is new, what is refused."""

import random
import re
import shutil

import pytest
import torch

from shapeshift._system.errors import ShapeshiftError
from shapeshift.data.prepare import prepare
from shapeshift.run.folder import Run, prepared_directory
from shapeshift.run.train import train
from shapeshift.training.observer import Observer

ONE_UPDATE = "training.max_updates=1"
STILL = ("training.schedule.peak=1e-30", ONE_UPDATE)
"""Training that leaves the weights as they are."""


@pytest.fixture(scope="module")
def old(make_run):
    """A finished run with learned positions."""
    sizes = ("training.max_updates=45", "position.parts.0.num_positions=64")
    return make_run("position=learned", *sizes)[0]


@pytest.fixture
def begin(old, make_config, tmp_path):
    """Starts a run from the old one, or from another; returns it, and the line about it."""

    def make(*overrides, start=None):
        config = make_config(f"training.init_from={start or old.directory}", *overrides)
        started, observer = [], Observer()
        observer.started = started.append
        run = train(config, tmp_path / "new", observer, prepared_root=tmp_path / "prepared")
        return run, started

    return make


def weights(run):
    return dict(run.model().named_parameters())


@pytest.mark.parametrize(
    ("position", "new", "left_out"),
    [
        ("position=shape", 0, 2),
        ("position=rpe", 4, 2),
        ("position=learned position.parts.0.num_positions=80", 2, 2),
    ],
)
def test_all_is_kept_but_what_the_other_position_scheme_has_alone(
    old, begin, position, new, left_out
):
    run, [line] = begin(*position.split(), *STILL)
    before, after = weights(old), weights(run)
    given = [name for name in after if ".position." not in name]
    assert all(".position." in name for name in before.keys() - given)
    for name in given:
        torch.testing.assert_close(after[name], before[name], rtol=0, atol=0)
    kept = sum(after[name].numel() for name in given)
    assert line.startswith(f"starts from {old.directory}: {kept:,} parameters")
    names = re.findall(r"(new|left out): ([^;]*)", line)
    counts = {what: len(listed.split(", ")) for what, listed in names}
    assert (counts.get("new", 0), counts.get("left out", 0)) == (new, left_out)


@pytest.mark.parametrize(
    ("before", "after", "kept", "new"),
    [
        ("rpe", "{name: both, parts: [{kind: t5, place: self}, {kind: shaw, place: self}]}", 4, 2),
        ("{name: two, parts: [{kind: shaw, place: self, stacks: encoder}]}", "rpe", 2, 2),
        ("tupe", "{name: d, parts: [{kind: deberta, place: self, max_distance: 4}]}", 0, 6),
    ],
)
def test_weights_are_kept_of_the_same_kind_at_the_same_place(
    make_run, begin, before, after, kept, new
):
    old, *_ = make_run(f"position={before}", ONE_UPDATE)
    run, [line] = begin(f"position={after}", *STILL, start=old.directory)
    tables = {name: x for name, x in weights(run).items() if ".position." in name}
    same = weights(old).values()
    found = [name for name, x in tables.items() if any(torch.equal(x, y) for y in same)]
    named = re.search("new: ([^;]*)", line)[1].split(", ")
    assert (len(found), len(named)) == (kept, new)
    assert {*found} | {*named} == tables.keys()


def test_other_text_has_the_old_subwords(old, begin, text, tmp_path):
    other = shutil.copytree(text, tmp_path / "other")
    for path in other.iterdir():
        lines = path.read_text("utf-8").split("\n")[:-1]
        random.Random(1).shuffle(lines)
        path.write_text("".join(line + "\n" for line in lines if line), "utf-8")
    run, _ = begin(f"data.corpus.root={other}", "position=learned", *STILL)
    assert run.subwords().fingerprint == old.subwords().fingerprint


def test_a_run_that_goes_on_does_not_start_again(begin, old):
    run, [_] = begin("position=shape", "training.max_updates=15")
    before = weights(run)
    assert Run(run.directory).config.training.init_from == old.directory
    again, reports = begin("position=shape", "training.max_updates=16")
    assert reports == []
    difference = max((before[n] - p).abs().max() for n, p in weights(again).items())
    assert 0 < difference < 0.05  # one update further, not back at the start


def test_a_begun_run_goes_on_without_the_run_that_it_started_from(begin, old, tmp_path):
    start, moved, two = tmp_path / "start", tmp_path / "moved", "training.max_updates=2"
    shutil.copytree(old.directory, start)
    begin("position=shape", ONE_UPDATE, start=start)
    with pytest.raises(ShapeshiftError, match=r"holds a run with another training\.init_from"):
        begin("position=shape", two, start=old.directory)
    start.rename(moved)
    run, reports = begin("position=shape", two, start=start)
    assert (reports, run.checkpoints.updates()[-1]) == ([], 2)
    results = tmp_path / "new" / "results"
    results.mkdir()
    run, reports = begin("position=shape", two, start=moved)
    assert (reports, run.config.training.init_from) == ([], moved)
    assert results.exists()  # of the same settings
    shutil.rmtree(moved)
    shutil.rmtree(tmp_path / "prepared")
    with pytest.raises(ShapeshiftError, match="is neither a run nor prepared data"):
        begin("position=shape", two, start=moved)
    begin("position=shape", two, f"data.subwords.models={run.directory}", start=moved)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (["model.dim=64"], "model of another shape; set model.dim=32 to start"),
        (["data.subwords.vocab_size=30"], "of other settings than these; set .*vocab_size=40"),
        (["data.subwords.models=null", "data.subwords.vocab_size=30"], "set data.subwords.models="),
    ],
)
def test_another_model_or_other_subwords_are_refused(begin, settings, said):
    with pytest.raises(ShapeshiftError, match=said):
        begin("position=shape", *settings)


def test_only_a_finished_run_can_be_started_from(begin, old, tmp_path):
    unfinished = shutil.copytree(old.directory, tmp_path / "unfinished")
    (unfinished / "average.safetensors").unlink()
    for folder, said in ((unfinished, "not trained to its end"), (tmp_path, "neither a run nor")):
        with pytest.raises(ShapeshiftError, match=said):
            begin(ONE_UPDATE, start=folder)
    assert not (tmp_path / "new" / "checkpoints").exists()


def test_prepared_data_lend_their_subwords(old, make_config, tmp_path):
    own = make_config()
    first = prepare(own.data, tmp_path / "first")
    lent = make_config(f"data.subwords.models={tmp_path / 'first'}")
    second = prepare(lent.data, tmp_path / "second")
    assert second.subwords.fingerprint == first.subwords.fingerprint
    assert prepared_directory(lent.data) != prepared_directory(own.data)
    (tmp_path / "first" / "subwords" / "joint.model").write_bytes(b"damaged")
    with pytest.raises(ShapeshiftError, match=r"joint\.model"):
        prepare(lent.data, tmp_path / "third")
