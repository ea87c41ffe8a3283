"""The suite finds every bug that is seeded, and nothing in the same models without it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from shapeshift.conformance import Finding, check

from .seeded_bugs import BUGS, Bug, Decoder, EncoderDecoder


def failures(bug: Bug, name: str | None) -> list[Finding]:
    claim = "absolute" if bug.kind == "learned" else "relative"
    max_length = 300 if bug.found_by == "bfloat16" else 40
    findings = check(bug.build(name), positions=claim, max_length=max_length)
    return [finding for finding in findings if finding.outcome == "FAIL"]


@pytest.mark.parametrize("name", BUGS)
def test_a_seeded_bug_is_found(name: str) -> None:
    found = failures(BUGS[name], name)
    assert BUGS[name].found_by in {finding.property for finding in found}
    assert all(finding.ids for finding in found)


@pytest.mark.parametrize("model", [Decoder, EncoderDecoder])
@pytest.mark.parametrize("kind", ["learned", "rotary", "alibi", "relative", "t5"])
def test_there_is_no_false_alarm_without_a_bug(model: type, kind: str) -> None:
    assert failures(Bug(model, kind, ""), None) == []


def test_the_smallest_failing_input_is_reported() -> None:
    by_name = {
        x.property: x for x in failures(BUGS["mask without the cache"], "mask without the cache")
    }
    assert [len(row) for row in by_name["cached = full"].ids] == [2]
    assert [len(row) for row in by_name["batch-mates"].ids] == [2, 2]


def test_the_guide_lists_the_bugs_and_what_finds_them() -> None:
    guide = Path(__file__).parents[3] / "docs" / "guides" / "checking.md"
    rows = re.findall(r"^\| ([^|]+) \| ([^|]+) \| ([^|]*)\|$", guide.read_text("utf-8"), re.M)
    listed = {name: (found_by, like.partition(" (")[0].strip()) for name, found_by, like in rows}
    assert {name: listed.get(name) for name in BUGS} == {
        name: (bug.found_by, bug.like) for name, bug in BUGS.items()
    }
    assert f"{len(BUGS)} bugs" in guide.read_text("utf-8")
