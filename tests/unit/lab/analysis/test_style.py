from pathlib import Path

import pytest
from matplotlib import rcParams
from matplotlib.figure import Figure

from shapeshift.errors import ShapeshiftError
from shapeshift.lab.analysis.style import look, looks, save, styled

MAGIC = {"png": b"\x89PNG", "svg": b"<?xml", "pdf": b"%PDF"}


def figure():
    with styled():
        made = Figure(figsize=(2, 1))
        made.subplots().plot([1, 2])
    return made


def test_a_figure_becomes_one_file_for_each_format(tmp_path):
    paths = save(figure(), tmp_path / "made" / "bleu.v1")
    assert [path.name for path in paths] == ["bleu.v1.png", "bleu.v1.svg", "bleu.v1.pdf"]
    for path in paths:
        assert path.read_bytes().startswith(MAGIC[path.suffix[1:]])


def test_the_same_figure_gives_the_same_bytes(tmp_path):
    first, second = (save(figure(), tmp_path / name) for name in ("a", "b"))
    assert [path.read_bytes() for path in first] == [path.read_bytes() for path in second]


def test_a_figure_that_fails_half_way_leaves_the_old_files(tmp_path, monkeypatch):
    old = [path.read_bytes() for path in save(figure(), tmp_path / "a")]
    made = figure()

    def fail(target, **options):  # after the first bytes
        if isinstance(target, Path):
            target.write_bytes(b"<?xml")
        raise KeyboardInterrupt

    monkeypatch.setattr(made, "savefig", fail)
    with pytest.raises(KeyboardInterrupt):
        save(made, tmp_path / "a")
    assert [(tmp_path / f"a.{name}").read_bytes() for name in MAGIC] == old
    assert len(list(tmp_path.iterdir())) == 3


def test_an_unknown_format_is_refused_before_anything_is_written(tmp_path):
    with pytest.raises(ShapeshiftError, match="unknown figure format 'jpg'"):
        save(figure(), tmp_path / "a", ("png", "jpg"))
    assert not list(tmp_path.iterdir())


def test_a_directory_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(ShapeshiftError, match="cannot be written: Not a directory"):
        save(figure(), tmp_path / "file" / "a")


def test_28_systems_look_different():
    assert len({look(number) for number in range(28)}) == 28


def test_the_papers_systems_look_the_same_whoever_is_beside_them():
    ape, rpe, shape = looks(["ape", "rpe", "shape"])
    assert [ape, rpe, shape] == [look(number) for number in range(3)]
    assert looks(["ape", "shape"]) == [ape, shape]
    assert looks(["SHAPE", "mine", "ape", "other"]) == [shape, rpe, ape, look(3)]


def test_settings_do_not_leak():
    before = rcParams["font.size"]
    with styled():
        assert rcParams["font.size"] != before
    assert rcParams["font.size"] == before
