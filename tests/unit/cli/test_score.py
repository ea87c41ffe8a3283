import random
import re

import pytest

from shapeshift.evaluation.scores import Scores, sha256_lines

from .running import shapeshift

REFERENCES = ["The old gardener waters the roses.", "A dog sleeps.", "She reads a long, long book."]


@pytest.fixture
def files(tmp_path):
    """A directory with `hypotheses`, `references` and `source`, one perfect line each."""
    text = "".join(f"{line}\n" for line in REFERENCES)
    (tmp_path / "hypotheses").write_text(text)
    (tmp_path / "references").write_text(text)
    (tmp_path / "source").write_text("a b c d e f\na b\na b c\n")
    return tmp_path


def score(folder, *arguments, **options):
    return shapeshift(folder, "score", *arguments, **options)


def test_a_pipe_gets_one_plain_line_for_each_score(files):
    status, out, err = score(files, "hypotheses", "references")
    bleu, chrf = out.splitlines()
    assert (status, err) == (0, "")
    assert re.fullmatch(r"BLEU 100\.00 \(nrefs:1\|.*\|version:[\d.]+\)", bleu)
    assert re.fullmatch(r"chrF2 100\.00 \(nrefs:1\|.*\|version:[\d.]+\)", chrf)


def test_metrics_source_and_json(files):
    options = "--metric bleu --source source --json out.json"
    status, out, _ = score(files, "hypotheses", "references", *options.split())
    assert status == 0
    score_line, *by_length = out.splitlines()
    assert score_line.startswith("BLEU 100.00 (")
    assert by_length[0] == "BLEU[0,10) 100.00 (3 segments)"
    assert len(by_length) == 1  # no sentence is longer
    written = Scores.load(files / "out.json")
    assert [bucket.num_segments for bucket in written.by_length] == [3, 0, 0, 0, 0, 0]
    assert written.hypotheses_sha256 == sha256_lines(REFERENCES)


def test_a_tokenizer_can_be_chosen(files):
    (files / "hypotheses").write_text("私は新しい本を読みました。\n", "utf-8")
    (files / "references").write_text("私は新しい本を借りました。\n", "utf-8")
    (files / "source").write_text("I read a book .\n")
    given = ["hypotheses", "references", "--metric", "bleu"]
    thirteen = score(files, *given, "--tokenize", "13a")[1]
    assert re.match(r"BLEU 0\.00 .*tok:13a", thirteen)
    chosen = ("--tokenize", "char", "--source", "source")
    whole, bucket, *_ = score(files, *given, *chosen)[1].splitlines()
    assert re.match(r"BLEU [5-9]\d\..*tok:char", whole)
    assert bucket.split()[1] == whole.split()[1]


def test_the_ending_or_the_script_of_the_references_chooses(files):
    for name in ("ref.cn", "ref.txt", "hypotheses"):
        (files / name).write_text("这是一个测试句子。\n", "utf-8")
    for name in ("ref.cn", "ref.txt"):
        status, out, err = score(files, "hypotheses", name, "--metric", "bleu")
        assert (status, err) == (0, "")
        assert re.match(r"BLEU 100\.00 .*tok:zh", out)
    err = score(files, "hypotheses", "ref.cn", "--metric", "bleu", "--tokenize", "13a")[2]
    assert "warning: the references have no spaces between words" in err
    (files / "hypotheses").write_text("这 是 一个 测试 句子 。\n", "utf-8")
    assert "are tokenised" in score(files, "hypotheses", "ref.cn")[2]


def test_a_source_without_spaces_has_its_length_in_characters(files):
    (files / "source").write_text("这是一个很长很长的测试句子\n短\n短\n", "utf-8")
    out = score(files, "hypotheses", "references", "--source", "source")[1]
    counts = [line.partition("(")[2] for line in out.splitlines() if line.startswith("BLEU[")]
    assert counts == ["2 segments)", "1 segments)"]


def test_another_system_is_tested_against_the_first(files):
    """Fifty sentences, of which the other system has one in five wrong."""
    references = [f"the {word} number {n} is here again" for n, word in enumerate("ab" * 25)]
    worse = ["no idea at all what this was" if n % 5 == 0 else x for n, x in enumerate(references)]
    for name, lines in (("all", references), ("worse", worse)):
        (files / name).write_text("".join(f"{line}\n" for line in lines))
    status, out, err = score(files, "all", "all", "--paired", "worse", "--metric", "bleu")
    assert (status, err) == (0, "")
    line = out.splitlines()[-1]
    found = re.fullmatch(
        r"worse: BLEU (\S+), (-\S+) against all, p = (\S+) \(paired bootstrap.*", line
    )
    assert found, line
    assert float(found[2]) == pytest.approx(float(found[1]) - 100)
    assert float(found[3]) < 0.01


def test_several_systems_are_corrected_together(files):
    """Holm: the smallest of three p-values three times, the next twice; and the line says so."""
    rng = random.Random(1)
    references = [f"the cat number {n} sat on the mat and saw {n} dogs" for n in range(60)]

    def noisy(share):
        return [" ".join(w if rng.random() > share else "x" for w in x.split()) for x in references]

    systems = {"base": noisy(0.3), "one": noisy(0.25), "two": noisy(0.2), "three": noisy(0.3)}
    for name, lines in {"wanted": references, **systems}.items():
        (files / name).write_text("".join(f"{line}\n" for line in lines))

    def p_values(*names):
        options = [each for name in names for each in ("--paired", name)]
        status, out, _ = score(files, "base", "wanted", *options, "--metric", "chrf")
        assert status == 0
        lines = out.splitlines()[-len(names) :]
        assert all(("Holm" in line) == (len(names) > 1) for line in lines)
        return {x.partition(":")[0]: float(re.search(r", p = (\S+) ", x)[1]) for x in lines}

    alone = {name: p_values(name)[name] for name in ("one", "two", "three")}
    small, middle, large = sorted(alone, key=alone.get)
    together = p_values("one", "two", "three")
    assert 0 < alone[small] < alone[middle] < 0.5
    assert together[small] == pytest.approx(3 * alone[small], abs=3e-4)
    expected = min(1, max(together[small], 2 * alone[middle]))
    assert together[middle] == pytest.approx(expected, abs=3e-4)
    assert together[large] == pytest.approx(max(together[middle], alone[large]), abs=3e-4)
