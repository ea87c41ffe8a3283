"""No false alarm on what we ship and on models of transformers; what the API reports."""

from __future__ import annotations

from copy import deepcopy

import pytest
import torch
from torch import nn

from shapeshift.conformance import PROPERTIES, Finding, Subject, check
from shapeshift.errors import ShapeshiftError
from shapeshift.model import ModelConfig, build
from shapeshift.positions import PRESETS

from . import tiny_models

FAST = {"ape", "rope", "Llama", "BART"}
SHAPE = {"dim": 32, "num_heads": 4, "ff_dim": 32, "encoder_layers": 2, "decoder_layers": 2}


def some_long(names: object) -> list[object]:
    return [n if n in FAST else pytest.param(n, marks=pytest.mark.long) for n in names]  # type: ignore[attr-defined]


def failures(model: nn.Module) -> list[Finding]:
    findings = check(model)
    assert {finding.property for finding in findings} == set(PROPERTIES)
    assert sum(finding.outcome == "pass" for finding in findings) >= 6
    return [finding for finding in findings if finding.outcome == "FAIL"]


@pytest.mark.parametrize("preset", some_long(PRESETS))
def test_there_is_no_false_alarm_on_a_preset(preset: str) -> None:
    torch.manual_seed(0)
    assert failures(build(ModelConfig(**SHAPE), preset, 60, 60)) == []


@pytest.mark.parametrize("name", some_long(tiny_models.DECODER_ONLY | tiny_models.OTHERS))
def test_there_is_no_false_alarm_on_a_model_of_transformers(name: str) -> None:
    assert failures(tiny_models.build(name)) == []


def test_dynamic_ntk_contradicts_the_cache() -> None:
    # transformers #25104: keys in the cache were turned with the speeds of a shorter text.
    [finding] = failures(tiny_models.build("dynamic NTK"))
    assert finding.property == "beyond the end"
    assert "with a cache" in finding.detail


def test_what_does_not_apply_says_why() -> None:
    findings = {(x.property, x.side): x for x in check(tiny_models.build("BART"))}
    assert "pad on the right" in findings["left padding", "encoder"].detail
    assert findings["packing", "decoder"].detail == "it takes no position_ids"
    assert findings["beyond the end", "decoder"].detail.startswith("refused: IndexError")


def test_claims_come_from_the_modules() -> None:
    outcomes = {
        name: {x.property: x for x in check(tiny_models.build(name), max_length=5)}["shift"].detail
        for name in ("GPT-2", "Llama")
    }
    assert "wanted more than" in outcomes["GPT-2"]
    assert "wanted at most" in outcomes["Llama"]


def test_a_wrong_claim_is_found() -> None:
    model = tiny_models.build("Llama")
    findings = {x.property: x.outcome for x in check(model, positions="absolute", max_length=5)}
    assert findings["shift"] == "FAIL"
    findings = {x.property: x.outcome for x in check(model, positions="none", max_length=5)}
    assert findings["effect"] == "FAIL"


def test_the_model_is_left_alone() -> None:
    model = tiny_models.build("Llama").train()
    before = deepcopy(model.state_dict())
    check(model, max_length=5)
    assert model.training
    assert all(parameter.requires_grad for parameter in model.parameters())
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_any_model_through_a_subject() -> None:
    class Bag(Subject):
        takes_mask = takes_position_ids = takes_cache = False

        def logits(self, ids, attention_mask=None, position_ids=None, cache=None):  # type: ignore[no-untyped-def]
            total = self.model(ids).cumsum(1)
            return total @ self.model.weight.T

    torch.manual_seed(0)
    findings = {x.property: x for x in check(Bag(nn.Embedding(40, 8), claim="relative"))}
    assert findings["effect"].outcome == "FAIL"
    assert findings["cached = full"].detail == "it has no cache"


@pytest.mark.parametrize(("model", "message"), [(3, "nn.Module"), (nn.Linear(2, 2), "vocab_size")])
def test_what_cannot_be_checked_is_refused(model: nn.Module, message: str) -> None:
    with pytest.raises(ShapeshiftError, match=message):
        check(model)
