"""A model after `use_position` is saved, opened, wrapped, placed and compiled as others are."""

from __future__ import annotations

import json
import subprocess
import sys
from copy import deepcopy
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from tests.unit.tiny_models import hf, ids, logits, make, make_with_images

from shapeshift import unshift, use_position
from shapeshift._system.errors import ShapeshiftError
from shapeshift.interop import reopen
from shapeshift.positions import Shaw


def swapped(head: str, position: Any, **options: Any) -> Any:
    """Return a model with positions that matter."""
    model = make(head)
    use_position(model, position, **options)
    for name, weight in model.named_parameters():
        if "shapeshift_positions" in name:
            weight.data.normal_()
    return model


def opened(model: Any, folder: Path, **options: Any) -> Any:
    """Save a model and return what `from_pretrained` makes of it."""
    model.save_pretrained(folder)
    again, report = type(model).from_pretrained(folder, output_loading_info=True, **options)
    assert not any(report.values()), report
    return again


def assert_saved_without_positions(model: Any, folder: Path) -> None:
    model.save_pretrained(folder)
    assert "shapeshift" not in (folder / "config.json").read_text()


CHANGES: list[tuple[str, str, dict[str, Any]]] = [
    ("LlamaForCausalLM", "t5", {}),
    ("GPT2LMHeadModel", "alibi", {}),
    ("SmolLM3ForCausalLM", "rope", {"base": 500.0}),
    ("BertForMaskedLM", "kerple", {}),
    ("LlamaForCausalLM", "rpe", {"share_tables": True}),
    ("LlamaForCausalLM", "fire", {}),
]


@pytest.mark.parametrize(("head", "position", "options"), CHANGES)
def test_a_saved_model_opens_with_its_positions(
    head: str, position: str, options: dict[str, Any], tmp_path: Path
) -> None:
    """And their weights, also a second time; `unshift` still restores the model's own."""
    own, model = logits(make(head), ids()), swapped(head, position, **options)
    expected = logits(model, ids())
    for n in range(2):
        model = opened(model, tmp_path / str(n))
        assert torch.equal(logits(model, ids()), expected)
    assert opened(model, tmp_path / "bf16", dtype=torch.bfloat16).dtype is torch.bfloat16
    built = type(model)(model.config).eval()  # from the configuration alone: with new weights
    assert built(ids()).logits.isfinite().all()
    unshift(model)
    torch.testing.assert_close(logits(model, ids()), own)
    assert_saved_without_positions(model, tmp_path / "own")


@pytest.mark.parametrize("part", ["", "model.language_model"])
def test_a_part_of_a_larger_model_is_saved_and_opened(part: str, tmp_path: Path) -> None:
    model = make_with_images("Gemma3ForConditionalGeneration", axes=False)
    config, before = model.config, logits(model, ids())
    use_position(model.get_submodule(part), "alibi")
    expected = logits(model, ids())
    assert not torch.allclose(expected, before)
    assert config.text_config._attn_implementation != "shapeshift"
    again = opened(model, tmp_path)
    assert torch.equal(logits(again, ids()), expected)
    for changed in (again, model):
        unshift(changed)
        assert torch.equal(logits(changed, ids()), before)
        assert_saved_without_positions(changed, tmp_path)


@pytest.mark.parametrize("head", ["LlamaForCausalLM", "GPT2LMHeadModel"])
def test_a_head_is_saved_with_the_position_of_its_base(head: str, tmp_path: Path) -> None:
    model = make(head)
    before, config = logits(model, ids()), model.config
    use_position(model.base_model, "alibi")
    expected = logits(model, ids())
    again = opened(model, tmp_path)
    assert torch.equal(logits(again, ids()), expected)
    assert not torch.equal(expected, before)
    assert not hasattr(config, "shapeshift_position")  # another model may have it
    unshift(model.base_model)
    assert_saved_without_positions(model, tmp_path)


@pytest.mark.parametrize("first", ["alibi", Shaw(num_heads=4, head_dim=8, causal=True)])
def test_an_earlier_entry_gives_way_to_a_new_position(
    first: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The model was opened without shapeshift, or its position has no entry."""
    own = logits(make("LlamaForCausalLM"), ids())
    swapped("LlamaForCausalLM", first).save_pretrained(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(hf.PreTrainedModel, "post_init", reopen._post_init)
        model = hf.LlamaForCausalLM.from_pretrained(tmp_path, attn_implementation="sdpa").eval()
    assert torch.equal(logits(model, ids()), own)
    if not isinstance(first, str):
        model = hf.LlamaForCausalLM.from_pretrained(tmp_path).eval()
    use_position(model, "nope")
    expected = logits(model, ids())
    again = opened(model, tmp_path / "new")
    assert torch.equal(logits(again, ids()), expected)
    unshift(model)
    assert torch.equal(logits(model, ids()), own)


def test_models_that_share_a_configuration_are_undone_one_by_one(tmp_path: Path) -> None:
    model = swapped("LlamaForCausalLM", "t5")
    expected = logits(model, ids())
    other = type(model)(model.config).eval()
    assert other.config is other.model.config
    unshift(other)
    assert torch.equal(logits(model, ids()), expected)
    assert torch.equal(logits(opened(model, tmp_path), ids()), expected)


def test_an_attention_that_from_pretrained_gets_is_that_after_unshift(tmp_path: Path) -> None:
    model = swapped("LlamaForCausalLM", "alibi")
    again = opened(model, tmp_path, attn_implementation="eager")
    assert torch.equal(logits(again, ids()), logits(model, ids()))
    unshift(again)
    assert again.config._attn_implementation == "eager"


def test_options_are_saved_as_numbers_or_refused(tmp_path: Path) -> None:
    model = swapped("LlamaForCausalLM", "rope", base=torch.tensor(500.0))
    assert torch.equal(logits(opened(model, tmp_path), ids()), logits(model, ids()))
    model = make("LlamaForCausalLM")
    with pytest.raises(ShapeshiftError, match=r"base is .*which config.json cannot hold; build"):
        use_position(model, "rope", base=object())
    assert not hasattr(model.config, "shapeshift_position")


def test_positions_of_the_users_own_are_given_again(tmp_path: Path) -> None:
    build = partial(Shaw, num_heads=4, head_dim=8, causal=True, share_tables=True)
    model = swapped("LlamaForCausalLM", build())
    expected = logits(model, ids())
    model.save_pretrained(tmp_path)
    again = hf.AutoModelForCausalLM.from_pretrained(tmp_path).eval()
    with pytest.raises(ShapeshiftError, match=r"call use_position \(after"):
        again(ids())
    use_position(again, build())
    assert not torch.equal(logits(again, ids()), expected)
    again.load_state_dict(load_file(tmp_path / "model.safetensors"), strict=False)
    assert torch.equal(logits(again, ids()), expected)


@pytest.mark.parametrize(
    "entry",
    [
        {},
        {"position": "alibi", "layers": {"layers.0.self_attn": 3}, "variants": []},
        {"position": "alibi", "layers": {}, "variants": [], "tables": ["wpe"], "rotary": []},
        None,  # that of the model, with a class to import
    ],
)
def test_an_entry_that_cannot_be_read_is_an_error(entry: Any, tmp_path: Path) -> None:
    swapped("LlamaForCausalLM", "alibi").save_pretrained(tmp_path)
    settings = json.loads((tmp_path / "config.json").read_text())
    entry = settings["shapeshift_position"] | {"position": "this:Zen"} if entry is None else entry
    (tmp_path / "config.json").write_text(json.dumps({**settings, "shapeshift_position": entry}))
    with pytest.raises(ShapeshiftError, match="cannot be read"):
        hf.AutoModelForCausalLM.from_pretrained(tmp_path)
    assert "this" not in sys.modules


def test_an_error_of_a_kind_is_no_error_of_its_entry(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    swapped("LlamaForCausalLM", "alibi").save_pretrained(tmp_path)
    monkeypatch.setattr(reopen, "install", lambda *_: [][0])
    with pytest.raises(IndexError):
        hf.AutoModelForCausalLM.from_pretrained(tmp_path)


OPEN = """
import sys
{first}
assert "transformers" not in sys.modules
from transformers import AutoModelForCausalLM
model = AutoModelForCausalLM.from_pretrained({folder!r})
print(type(model.model.shapeshift_positions[0]).__name__)
"""


class Classifier(hf.LlamaPreTrainedModel):  # type: ignore[name-defined,misc]
    """A model of the user's own, whose base has a copy of its configuration, and whose `forward`
    returns a tensor."""

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self.model = hf.LlamaModel(deepcopy(config))
        self.head = torch.nn.Linear(config.hidden_size, 3)
        self.post_init()

    def forward(self, input_ids: Any, attention_mask: Any = None) -> Any:
        return self.head(self.model(input_ids, attention_mask=attention_mask)[0])


def with_copies(which: str) -> Any:
    """Return a model in which some parts have a copy of its configuration."""
    if which == "own":
        return Classifier(make("LlamaForCausalLM").config).eval()
    model = make("LlamaForCausalLM")
    part = model.get_submodule(which)
    part.config = deepcopy(part.config)
    return model


@pytest.mark.parametrize("which", ["", "model", "model.layers.1.self_attn", "own"])
def test_parts_with_copies_of_the_configuration_change_and_are_saved(
    which: str, tmp_path: Path
) -> None:
    def outputs(model: Any) -> Any:
        out = model(ids())
        return out if which == "own" else out.logits

    model = with_copies(which)
    own = outputs(model)
    use_position(model, "nope")
    without = outputs(model)
    unshift(model)
    assert torch.equal(outputs(model), own)
    use_position(model, "t5")
    for weight in model.model.shapeshift_positions.parameters():
        weight.data.normal_()
    assert not torch.allclose(outputs(model), without, atol=1e-4)
    assert torch.equal(outputs(opened(model, tmp_path)), outputs(model))


def test_an_encoder_of_a_pair_gets_its_position() -> None:
    """Its attentions have another configuration object than it has itself."""
    decoder = make("BertLMHeadModel", is_decoder=True, add_cross_attention=True)
    model = hf.EncoderDecoderModel(encoder=make("BertModel"), decoder=decoder).eval()
    outputs = []
    for position in ("nope", "alibi"):
        use_position(model.encoder, position)
        outputs.append(model.encoder(ids())[0])
        unshift(model)
    assert not torch.allclose(*outputs, atol=1e-4)


def test_a_configuration_that_differs_is_not_saved_without_the_position(tmp_path: Path) -> None:
    model = with_copies("own")
    model.config.use_cache = False
    use_position(model, "t5")
    with pytest.raises(ShapeshiftError, match="is not that of its part"):
        model.save_pretrained(tmp_path)


def test_a_configuration_that_was_given_afterwards_is_restored_as_well(tmp_path: Path) -> None:
    model = make("LlamaForCausalLM")
    expected = logits(model, ids())
    use_position(model, "t5")
    model.config = deepcopy(model.config)
    unshift(model)
    again = opened(model, tmp_path)
    assert torch.equal(logits(again, ids()), expected)
    assert not hasattr(again.config, "shapeshift_position")


def test_layers_that_were_removed_are_an_error(tmp_path: Path) -> None:
    model = swapped("LlamaForCausalLM", "rpe")
    model.model.layers, model.config.num_hidden_layers = model.model.layers[:1], 1
    model.save_pretrained(tmp_path)
    with pytest.raises(ShapeshiftError, match="which this LlamaModel does not"):
        type(model).from_pretrained(tmp_path)


def test_a_layer_that_was_replaced_is_an_error_with_a_remedy() -> None:
    model = swapped("LlamaForCausalLM", "alibi")
    layer = model.model.layers[0]
    layer.self_attn = type(layer.self_attn)(model.config, 0)
    with pytest.raises(ShapeshiftError, match="call use_position \\(after unshift"):
        logits(model, ids())
    unshift(model)
    use_position(model, "alibi")
    logits(model, ids())


def test_sizes_are_those_of_the_model() -> None:
    model = make("LlamaForCausalLM")
    use_position(model, "t5", num_heads=4)
    unshift(model)
    with pytest.raises(ShapeshiftError, match="is 4, got num_heads=2; leave"):
        use_position(model, "t5", num_heads=2)


@pytest.mark.parametrize("head", ["BertForMaskedLM", "RobertaForMaskedLM", "AlbertForMaskedLM"])
def test_there_is_no_end_where_the_table_had_one(head: str) -> None:
    model = make(head, positions=20)
    use_position(model, "alibi")
    assert logits(model, ids(length=40)).shape[1] == 40


@pytest.mark.long
@pytest.mark.parametrize("first", ["import shapeshift", ""])
def test_another_process_opens_a_model_if_it_imports_shapeshift(first: str, tmp_path: Path) -> None:
    swapped("LlamaForCausalLM", "t5").save_pretrained(tmp_path)
    code = OPEN.format(first=first, folder=str(tmp_path))
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    if first:
        assert ran.stdout.strip() == "T5", ran.stderr
    else:
        assert 'attn_implementation="shapeshift"` is not supported' in ran.stderr


def test_a_model_is_spread_over_devices(tmp_path: Path) -> None:
    """Here the processor and the disk, by hooks of accelerate."""
    model = swapped("LlamaForCausalLM", "t5")
    parts = ("embed_tokens", "layers.0", "norm", "rotary_emb", "shapeshift_positions")
    places = {**{f"model.{part}": "cpu" for part in parts}, "lm_head": "cpu"}
    places["model.layers.1"] = "disk"
    again = opened(model, tmp_path, device_map=places, offload_folder=tmp_path / "offload")
    assert again.model.layers[1].mlp.up_proj.weight.is_meta
    torch.testing.assert_close(logits(again, ids()), logits(model, ids()))


def test_adapters_of_peft_are_trained_saved_and_opened(tmp_path: Path) -> None:
    peft = pytest.importorskip("peft")
    model = swapped("LlamaForCausalLM", "t5")
    model.save_pretrained(tmp_path / "base")
    config = peft.LoraConfig(target_modules=["q_proj"], modules_to_save=["shapeshift_positions.0"])
    adapted = peft.get_peft_model(model, config).train()
    adapted(ids(), labels=ids()).loss.backward()
    trained = {name for name, weight in adapted.named_parameters() if weight.grad is not None}
    assert any("lora_B" in name for name in trained)
    assert any("shapeshift_positions" in name for name in trained)
    for name, weight in adapted.named_parameters():
        if name in trained:
            weight.data += 0.5
    adapted.eval().save_pretrained(tmp_path / "adapter")
    base = hf.AutoModelForCausalLM.from_pretrained(tmp_path / "base")
    again = peft.PeftModel.from_pretrained(base, tmp_path / "adapter")
    torch.testing.assert_close(logits(again, ids()), logits(adapted, ids()))


@pytest.mark.slow
@pytest.mark.parametrize("head", ["LlamaForCausalLM", "GPT2LMHeadModel", "BertForMaskedLM"])
def test_a_compiled_model_computes_the_same(head: str) -> None:
    model = swapped(head, "t5")
    mask = torch.ones_like(ids())
    mask[0, :3] = 0
    compiled = torch.compile(model, backend="eager")
    for given in ({}, {"attention_mask": mask}):
        expected = logits(model, ids(), **given)
        found = compiled(ids(), **given).logits
        torch.testing.assert_close(found[:, 3:], expected[:, 3:], rtol=0, atol=1e-5)
    torch.compiler.reset()
