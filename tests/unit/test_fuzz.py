"""`make fuzz`: some seconds of it, and whether it finds bugs."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import torch
from tests.fuzz import __main__ as command
from tests.fuzz import attend, definition
from tests.fuzz.search import attempt, draw, search, shrink
from torch import Tensor

from shapeshift import kernels
from shapeshift.attention import BACKENDS
from shapeshift.positions import T5, ALiBi

pytestmark = pytest.mark.filterwarnings("ignore:Support for mismatched key_padding_mask")

QUICK = ("attend", "layers", "decoding", "models")
"""Areas without libraries that are slow to import, and without processes."""

in_c = pytest.mark.skipif(not kernels.is_available(torch.float32), reason="no compiled kernels")


def test_random_calls() -> None:
    endings: Counter[str] = Counter()
    for seed in range(40):
        case = draw(seed, QUICK)
        ending, finding = attempt(case)
        assert finding is None, finding
        endings.update((ending, case["area"]))
    assert endings["right"] > 30, endings
    assert {*QUICK} <= endings.keys()


@pytest.mark.long  # imports transformers
def test_a_call_of_a_model_of_hugging_face() -> None:
    pytest.importorskip("transformers")
    assert attempt({"area": "outside", "seed": 0, "kind": ["alibi", {}], "T": 5})[0] == "right"


@pytest.mark.long
def test_a_call_with_little_memory() -> None:
    for megabytes in (0, 8):
        case = {"area": "memory", "seed": 0, "megabytes": megabytes, "Q": 300, "K": 300}
        ending, finding = attempt(case)
        assert ending == "right", finding


def backwards(x: Tensor) -> Tensor:
    """Return `x`, whose gradient has the wrong sign."""
    return 2 * x.detach() - x


Change = Callable[[Tensor], Tensor]

LARGE: dict[str, Any] = {"area": "attend", "seed": 3, "B": 2, "H": 2, "Q": 9, "K": 9, "E": 16}
KINDS = ("ALiBi", "KERPLE", "T5", "Shaw", "Skew", "FIRE", "TUPE")


SIGNS = [
    (name, change)
    for name in KINDS
    for change in (torch.neg, backwards)
    if not (name == "ALiBi" and change is backwards)  # nothing of it is trained
]


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize(("name", "change"), SIGNS)
def test_no_tolerance_hides_a_sign(
    name: str, dtype: str, change: Change, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = LARGE | {"dtype": dtype, "kinds": [[name.lower(), {}]], "wants": "qkvp"}
    assert attempt(case)[0] == "right"
    formula = definition.FORMULAS[name]
    monkeypatch.setitem(definition.FORMULAS, name, lambda *args: change(formula(*args)))
    ending, finding = attempt(case)
    assert ending == "wrong"
    assert finding is not None
    assert finding.what.startswith("gradient") or change is torch.neg


def broken(function: Callable[..., Tensor], change: Change) -> Callable[..., Tensor]:
    return lambda *args, **options: change(function(*args, **options))


def last_sentence(out: Tensor) -> Tensor:
    """Return an output of which the sentences beyond the first are wrong by a hundredth."""
    return torch.cat((out[:1], out[1:] * 1.01))


@pytest.mark.parametrize(
    ("owner", "name", "change", "smallest"),
    [
        pytest.param(
            ALiBi, "distance_bias", torch.neg, {"K": 2, "kinds": [["alibi", {}]]}, id="a sign"
        ),
        pytest.param(
            T5, "distance_bias", backwards, {"K": 2, "kinds": [["t5", {}]], "wants": "p"},
            id="a gradient",
        ),
        pytest.param(
            BACKENDS["cpu"], "run", last_sentence, {"B": 2}, id="a backend", marks=in_c
        ),
        pytest.param(BACKENDS["sdpa"], "run", last_sentence, {"B": 2}, id="another backend"),
    ],
)  # fmt: skip
def test_a_bug_is_found_and_the_case_made_small(
    owner: Any, name: str, change: Change, smallest: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(owner, name, broken(getattr(owner, name), change))
    finding = search(range(200), ["attend"])
    assert finding is not None
    case = {x: y for x, y in finding.case.items() if x not in ("area", "seed")}
    assert {x: case.get(x) for x in smallest} == smallest
    # What is drawn for a seed may hide the bug in the simplest of all cases.
    assert len(case) <= len(smallest) + 2, case
    assert max(case.get(x, 1) for x in "BHQK") <= 3, case
    monkeypatch.undo()
    assert attempt(finding.case)[0] == "right"


def test_the_command_prints_how_to_run_the_smallest_case(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(ALiBi, "distance_bias", broken(ALiBi.distance_bias, torch.neg))
    assert command.main(["--area", "attend", "--seed", "0", "--cases", "200"]) == 1
    printed = capsys.readouterr().out
    assert "wrong 1" in printed
    assert "cpu" in printed or "reference" in printed
    *_, last = printed.splitlines()
    case = last.partition("--case '")[2].removesuffix("'")
    assert json.loads(case)["area"] == "attend"
    assert command.main(["--case", case]) == 1
    monkeypatch.undo()
    assert command.main(["--case", case]) == 0


def test_a_crash_is_a_finding_and_a_refusal_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    refused = LARGE | {"kinds": [["rotary", {}], ["shaw", {}]]}
    assert attempt(refused) == ("invalid", None)

    def crash(*args: object, **options: object) -> Tensor:
        raise IndexError("out of range")

    monkeypatch.setattr(attend, "attend", crash)
    _, finding = attempt(LARGE)
    assert finding is not None
    assert finding.what == "IndexError"
    assert shrink(finding).case == {"area": "attend", "seed": 3}
