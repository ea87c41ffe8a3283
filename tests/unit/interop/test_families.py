"""SHAPE in Hugging Face models: tiny ones with random weights, one for each family."""

from __future__ import annotations

import contextlib
import pickle
import re
from collections.abc import Iterator

import pytest
import torch
from accelerate.hooks import ModelHook, add_hook_to_module
from tests.unit.tiny_models import ALL, LEARNED, SINUSOIDAL, Example, make
from torch import Tensor, nn

from shapeshift import shift_positions, unshift
from shapeshift._system.errors import ShapeshiftError

from .test_shift import offsets

PADDED = {name: example for name, example in ALL.items() if example.padding is not None}


def each(examples: dict[str, Example]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("example", examples.values(), ids=examples.keys())


def some_ids(num_sequences: int, length: int = 6) -> Tensor:
    return torch.randint(5, 50, (num_sequences, length), generator=torch.Generator().manual_seed(1))


@contextlib.contextmanager
def watched(model: nn.Module, names: tuple[str, ...]) -> Iterator[dict[str, Tensor]]:
    """Collect what the position embeddings hand to the model."""
    seen: dict[str, Tensor] = {}
    with contextlib.ExitStack() as hooks:
        for name in names:

            def keep(module: nn.Module, args: object, output: Tensor, name: str = name) -> None:
                seen[name] = output.detach()

            hooks.enter_context(model.get_submodule(name).register_forward_hook(keep))
        yield seen


@each(ALL)
def test_training_shifts_each_sequence_and_each_side(example: Example) -> None:
    model, inputs = example.build(), example.inputs(some_ids(40))
    assert shift_positions(model, 3, max_length=6) == list(example.modules)
    passes = []
    with watched(model, example.modules) as seen:
        for _ in range(2):
            model(**inputs)
            for name in example.modules:
                found = offsets(seen[name], example.rows(model, name), example.first)
                assert set(found) == {0, 1, 2, 3}
                passes.append(tuple(found))
    assert len(set(passes)) == len(passes)  # passes differ, and so do source and target


NEXT_TO_TOKENS = {
    "embeddings.position_embeddings": (
        "AlignTextModel", "AltCLIPTextModel", "BertGenerationDecoder", "BlipTextModel",
        "ChineseCLIPTextModel", "ClapTextModel", "ConvBertForMaskedLM", "Data2VecTextForMaskedLM",
        "DebertaForMaskedLM", "ErnieForMaskedLM", "EsmForMaskedLM", "FNetForMaskedLM",
        "FlavaTextModel", "GitForCausalLM", "LayoutLMModel", "LukeForMaskedLM", "MarkupLMModel",
        "MegatronBertForMaskedLM", "MraForMaskedLM", "NystromformerForMaskedLM",
        "RemBertForMaskedLM", "RoCBertForMaskedLM", "RobertaPreLayerNormForMaskedLM",
        "SplinterModel", "TapasModel", "VisualBertModel", "XLMRobertaXLForMaskedLM",
        "YosoForMaskedLM",
    ),
    "embeddings.position_embedding": (
        "Aimv2TextModel", "CLIPSegTextModel", "GroupViTTextModel", "MetaClip2TextModel",
        "OwlViTTextModel", "SiglipTextModel", "Siglip2TextModel", "XCLIPTextModel",
    ),
    "transformer.position_embeddings": ("FlaubertWithLMHeadModel", "XLMWithLMHeadModel"),
    "transformer.wpe": ("ImageGPTForCausalImageModeling",),
    "transformer.positions_embed": ("OpenAIGPTLMHeadModel",),
    "perceiver.input_preprocessor.position_embeddings": ("PerceiverForMaskedLM",),
}  # fmt: skip
"""End of the table's name → classes that have it."""


@pytest.mark.parametrize(
    ("table", "head"), [(table, head) for table, heads in NEXT_TO_TOKENS.items() for head in heads]
)
def test_a_table_next_to_the_embedding_of_tokens_is_shifted(table: str, head: str) -> None:
    model = make(head, 40).train()
    [name] = shift_positions(model, 3)
    assert f".{name}".endswith(f".{table}")
    embedding = model.get_submodule(name)
    with watched(model, (name,)) as seen:
        model(some_ids(40))
    first = 0 if embedding.padding_idx is None else embedding.padding_idx + 1
    first = 2 if head.startswith(("Mra", "Nystromformer", "Yoso")) else first
    assert {*offsets(seen[name], embedding.weight.detach(), first)} == {0, 1, 2, 3}


def test_a_table_of_steps_is_left_alone() -> None:
    with pytest.raises(ShapeshiftError, match="no absolute position embedding is known"):
        shift_positions(make("DecisionTransformerModel"))


@each(ALL)
def test_evaluation_is_unchanged_and_unshift_is_exact(example: Example) -> None:
    model, ids = example.build(), some_ids(3)
    weights = {name: value.clone() for name, value in model.state_dict().items()}
    training = example.outputs(model, ids)
    evaluated = example.outputs(model.eval(), ids)
    attributes = set(vars(model))
    shift_positions(model, 20)
    assert torch.equal(example.outputs(model, ids), evaluated)
    assert not torch.allclose(example.outputs(model.train(), ids), training, atol=1e-3)
    unshift(model)
    assert torch.equal(example.outputs(model, ids), training)
    assert set(vars(model)) == attributes
    assert model.state_dict().keys() == weights.keys()
    assert all(torch.equal(model.state_dict()[name], weights[name]) for name in weights)


@each(PADDED)
def test_padding_stays_where_it_is(example: Example) -> None:
    model, ids = example.build(), some_ids(20)
    ids[:10, 4:] = 1
    shift_positions(model, 9)
    with watched(model, example.modules) as seen:
        model(**example.inputs(ids))
    for name in example.modules:
        table = example.rows(model, name)
        assert torch.equal(seen[name][:10, 4:], table[1].expand(10, 2, -1))
        found = offsets(seen[name][:10, :4], table, example.first)
        assert max(found) > 0


@each(SINUSOIDAL)
def test_a_sinusoidal_table_goes_on_by_the_formula(example: Example) -> None:
    model = example.build(positions=8)
    sizes = {name: example.rows(model, name).shape for name in example.modules}
    longer = example.build(positions=300)
    shift_positions(model, 200)
    with watched(model, example.modules) as seen:
        model(**example.inputs(some_ids(40, length=8)))
    for name in example.modules:
        found = offsets(seen[name], example.rows(longer, name), example.first)
        assert max(found) > 100
        assert example.rows(model, name).shape == sizes[name]  # the model's own stays


@each(SINUSOIDAL)
def test_a_table_somebody_trained_cannot_go_on(example: Example) -> None:
    model = example.build(positions=8)
    with torch.no_grad():
        example.rows(model, example.modules[-1])[3:].normal_()
    with pytest.raises(ShapeshiftError, match=re.escape(example.modules[-1])):
        shift_positions(model, 200)


def test_a_table_that_was_lengthened_or_moved_is_continued_anew() -> None:
    example = ALL["m2m100"]
    model, longer = example.build(positions=8), example.build(positions=300)
    shift_positions(model, 50)
    model(**example.inputs(some_ids(2)))
    with watched(model, example.modules) as seen:
        model(**example.inputs(some_ids(2, length=30)))  # M2M100 makes its own longer
        name = example.modules[0]
        offsets(seen[name], example.rows(longer, name), example.first)
        model.double()(**example.inputs(some_ids(2)))
        assert seen[name].dtype is torch.float64


@each(LEARNED)
def test_a_learned_table_that_is_too_short_is_refused(example: Example) -> None:
    model, name = example.build(), example.modules[0]
    room = example.rows(model, name).shape[0] - example.first
    with pytest.raises(ShapeshiftError, match=rf"{room} positions.*max_offset={room - 30} or less"):
        shift_positions(model, 30, max_length=30)
    shift_positions(model, room - 6, max_length=6)
    with watched(model, example.modules) as seen:
        model(**example.inputs(some_ids(300)))
    found = offsets(seen[name], example.rows(model, name), example.first)
    assert max(found) == room - 6  # the last row is reached
    with pytest.raises(ShapeshiftError, match=f"max_offset={room - 12} or less"):
        model(**example.inputs(some_ids(2, length=12)))  # LED pads to multiples of 6


@pytest.mark.filterwarnings("ignore:`gradient_checkpointing_enable`:FutureWarning")
@pytest.mark.parametrize("reentrant", [False, True], ids=["non-reentrant", "reentrant"])
@each({name: ALL[name] for name in ("gpt2", "bart", "m2m100")})
def test_gradient_checkpointing_gives_the_same_gradient(example: Example, reentrant: bool) -> None:
    def gradients(recompute: bool) -> list[Tensor]:
        model = example.build()
        model.config.use_cache = False
        if recompute:
            model.gradient_checkpointing_enable({"use_reentrant": reentrant})
        shift_positions(model, 20)
        torch.manual_seed(3)
        passes = [example.outputs(model, some_ids(3, length)) for length in (6, 4)]
        sum(logits.square().sum() for logits in passes).backward()  # after both passes
        return [p.grad for p in model.parameters() if p.grad is not None]

    plain, recomputed = gradients(False), gradients(True)
    assert len(plain) == len(recomputed) > 10
    assert all(map(torch.allclose, plain, recomputed))


def test_given_positions_and_embeddings_are_shifted_and_ids_counted_flat() -> None:
    example = ALL["gpt2"]
    model = example.build()
    shift_positions(model, 9)
    name, table = "transformer.wpe", example.rows(model, "transformer.wpe")
    with watched(model, example.modules) as seen:
        model(position_ids=torch.arange(5, 11)[None], input_ids=some_ids(20))
        assert set(offsets(seen[name], table, 0)) <= set(range(5, 15))
        model(inputs_embeds=torch.randn(20, 6, 32))
        assert len(set(offsets(seen[name], table, 0))) > 3
        model.transformer(input_ids=some_ids(12).view(4, 3, 6))  # which the model flattens
        assert len(offsets(seen[name], table, 0)) == 12


@each({name: ALL[name] for name in ("bart", "blenderbot", "m2m100")})
def test_embeddings_instead_of_ids_are_shifted_on_both_sides(example: Example) -> None:
    model, embeddings = example.build(), torch.randn(40, 6, 32)
    shift_positions(model, 3)
    with watched(model, example.modules) as seen:
        model(inputs_embeds=embeddings, decoder_inputs_embeds=embeddings)
    for name in example.modules:
        assert set(offsets(seen[name], example.rows(model, name), example.first)) == {0, 1, 2, 3}


def test_a_model_that_accelerate_dispatched_is_shifted() -> None:
    """Its hooks replace the `forward` of each module by one that calls the module's own."""
    outputs = []
    for dispatched in (False, True):
        example = ALL["bart"]
        model, ids = example.build(), some_ids(3)
        for name in example.modules if dispatched else ():
            add_hook_to_module(model.get_submodule(name), ModelHook())
        shift_positions(model, 9)
        torch.manual_seed(1)
        outputs.append(example.outputs(model, ids))
    assert torch.equal(*outputs)


def test_a_shifted_model_can_be_pickled() -> None:
    example = ALL["marian"]
    model, ids = example.build(), some_ids(3)
    before = example.outputs(model, ids)
    shift_positions(model, 20)
    twin = pickle.loads(pickle.dumps(model))
    assert not torch.allclose(example.outputs(twin, ids), before, atol=1e-3)
    unshift(twin)
    assert torch.equal(example.outputs(twin, ids), before)


@pytest.mark.parametrize(
    ("head", "kind"),
    [
        ("T5ForConditionalGeneration", "relative"), ("LlamaForCausalLM", "rotary"),
        ("GPTJForCausalLM", "rotary"), ("FalconForCausalLM", "rotary"),
        ("BloomForCausalLM", "ALiBi"),
    ],
)  # fmt: skip
def test_models_that_see_distances_alone_have_nothing_to_shift(head: str, kind: str) -> None:
    message = rf"known in {head}: its positions are {kind}, .*number the tokens with"
    with pytest.raises(ShapeshiftError, match=message):
        shift_positions(make(head), 10)
