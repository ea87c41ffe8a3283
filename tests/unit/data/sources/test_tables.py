"""Files that hold both languages: TSV and translation memories."""

import gzip
import os
import time

import pytest

from shapeshift._system.errors import ShapeshiftError
from shapeshift.data.sources import tables
from shapeshift.data.sources.tables import is_table, split_table

TMX = """<?xml version="1.0" encoding="{encoding}"?>
<!DOCTYPE tmx SYSTEM "tmx14.dtd">
<tmx version="1.4"><header srclang="en"/><body>{units}</body></tmx>
"""
UNITS = """
<tu><tuv xml:lang="en-US"><seg>A <bpt i="1">&lt;b&gt;</bpt>red<ept i="1">&lt;/b&gt;</ept>
  car &amp; a <hi>bus</hi></seg></tuv><tuv xml:lang="DE"><seg>Ein rotes Auto</seg></tuv></tu>
<tu><tuv xml:lang="de"><seg>Nur Deutsch</seg></tuv></tu>
<tu><tuv xml:lang="fr"><seg>Oui</seg></tuv><tuv lang="de"><seg>Ja</seg></tuv>
  <tuv lang="en"><seg>Yes</seg></tuv></tu>
"""


def write(folder, name, text, encoding="utf-8"):
    path = folder / name
    data = text.encode(encoding)
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


def taken_apart(path, languages=("en", "de")):
    counts = split_table(path, languages, path.parent / "made")
    sides = [(path.parent / f"made.{x}").read_text("utf-8").splitlines() for x in languages]
    return counts, [*zip(*sides, strict=True)]


@pytest.mark.parametrize("name", ["a.tsv", "a.tsv.gz"])
def test_tsv(tmp_path, name):
    text = 'yes\tja\r\n"no\t„nein“\r\nalone\r\n\t\r\n'
    counts, pairs = taken_apart(write(tmp_path, name, text))
    assert pairs == [("yes", "ja"), ('"no', "„nein“"), ("", "")]
    assert counts == [3, 1]


def test_a_missing_file_is_looked_for_with_gz(tmp_path):
    write(tmp_path, "a.tsv.gz", "yes\tja\n")
    assert taken_apart(tmp_path / "a.tsv")[1] == [("yes", "ja")]
    for name in ("b.tsv", "b.tmx"):
        with pytest.raises(ShapeshiftError, match="no such file: looked for"):
            split_table(tmp_path / name, ("en", "de"), tmp_path / "b")
    os.mkfifo(tmp_path / "c.tmx")
    with pytest.raises(ShapeshiftError, match="is no regular file"):
        split_table(tmp_path / "c.tmx", ("en", "de"), tmp_path / "c")


def test_a_first_line_names_the_columns(tmp_path):
    path = write(tmp_path, "a.tsv", "id\tDE\ten\n1\tja\tyes\n")
    assert taken_apart(path)[1] == [("yes", "ja")]
    path = write(tmp_path, "b.tsv", "de_DE\ten-GB\ten\nja\taye\tyes\n")
    (tmp_path / "made.en").unlink()
    (tmp_path / "made.de").unlink()
    assert taken_apart(path)[1] == [("yes", "ja")]


@pytest.mark.parametrize("text", ["1\tja\tyes\n", "fr\tde\nyes\tja\n"])
def test_columns_that_are_not_known_are_refused(text, tmp_path):
    with pytest.raises(ShapeshiftError, match=r"a\.tsv:1: has . columns.*give it a first line"):
        taken_apart(write(tmp_path, "a.tsv", text))
    with pytest.raises(ShapeshiftError, match="has no lines with a tab"):
        taken_apart(write(tmp_path, "b.tsv", "ja yes\n"))
    assert not (tmp_path / "made.en").exists()


@pytest.mark.parametrize("name", ["a.tmx", "a.TMX.gz"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
def test_tmx(tmp_path, name, encoding):
    path = write(tmp_path, name, TMX.format(units=UNITS, encoding=encoding), encoding)
    counts, pairs = taken_apart(path)
    assert pairs == [("A red car & a bus", "Ein rotes Auto"), ("Yes", "Ja")]
    assert counts == [2, 1]


def test_the_same_code_is_taken_before_a_shorter_one(tmp_path):
    units = "<tu>" + "".join(
        f'<tuv xml:lang="{code}"><seg>{code}</seg></tuv>' for code in ("pt-BR", "pt_PT", "en")
    )
    path = write(tmp_path, "a.tmx", TMX.format(units=units + "</tu>", encoding="utf-8"))
    assert taken_apart(path, ("pt-BR", "en"))[1] == [("pt-BR", "en")]
    units = units.replace("pt-BR", "en-GB").replace("pt_PT", "de")
    units += "</tu>" + units.replace("en-GB", "x").replace('"en"', '"en-AU"') + "</tu>"
    path = write(tmp_path, "b.tmx", TMX.format(units=units, encoding="utf-8"))
    for side in ("pt-BR", "en"):
        (tmp_path / f"made.{side}").unlink()
    assert taken_apart(path)[1] == [("en", "de"), ("en", "de")]


@pytest.mark.parametrize(
    "declaration", ['<!ENTITY a "aaaa">', '<!ENTITY a SYSTEM "/etc/hostname">']
)
def test_entities_are_refused(tmp_path, declaration):
    bomb = declaration + "".join(
        f'<!ENTITY {x} "{f"&{y};" * 10}">' for x, y in zip("bcdefghij", "abcdefghi", strict=True)
    )
    unit = '<tu><tuv xml:lang="en"><seg>&j;</seg></tuv><tuv xml:lang="de"><seg>x</seg></tuv></tu>'
    text = TMX.format(units=unit, encoding="utf-8").replace('SYSTEM "tmx14.dtd"', f"[{bomb}]")
    began = time.process_time()
    with pytest.raises(ShapeshiftError, match=r"a\.tmx:2: declares or uses the entity 'a'"):
        taken_apart(write(tmp_path, "a.tmx", text))
    assert time.process_time() - began < 1
    assert not (tmp_path / "made.en").exists()


def test_what_is_too_long_or_damaged_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(tables, "MAX_SEGMENT", 1 << 17)
    unit = '<tu><tuv xml:lang="en"><seg>{}</seg></tuv></tu>'
    long = TMX.format(units=unit.format("a " * (1 << 17)), encoding="utf-8")
    with pytest.raises(ShapeshiftError, match="a segment of more than 131,072 characters"):
        taken_apart(write(tmp_path, "a.tmx", long))
    endless = TMX.format(units=f'<tu id="{"a" * (1 << 20)}', encoding="utf-8")
    with pytest.raises(ShapeshiftError, match="a tag of more than 131,072 bytes"):
        taken_apart(write(tmp_path, "b.tmx", endless))
    for text in ("<tmx><body><tu>", "no xml", ""):
        with pytest.raises(ShapeshiftError, match="is no TMX file or damaged"):
            taken_apart(write(tmp_path, "c.tmx", text))


def test_the_name_says_what_holds_both_languages(tmp_path):
    names = ["a.tsv", "a.tmx.gz", "a.TSV", "a.en", "a.tsv.en", "tsv"]
    assert [is_table(tmp_path / name) for name in names] == [True, True, True, False, False, False]
