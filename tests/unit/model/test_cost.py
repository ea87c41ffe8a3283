"""Counted costs against what PyTorch counts and saves on a real, small model."""

import pytest
import torch
from torch.autograd.graph import saved_tensors_hooks
from torch.utils.flop_counter import FlopCounterMode

from shapeshift.model import ModelConfig, build, label_smoothed_loss
from shapeshift.model.cost import BatchShape, activation_bytes, count_parameters, forward_flops
from shapeshift.positions import PRESETS, Part, Scheme

V = 300
SCHEMES = {
    **PRESETS,
    "sinusoidal at q and k of both attentions": Scheme(
        parts=(Part("sinusoidal", "self"), Part("sinusoidal", "cross"))
    ),
    "shaw keys in one encoder layer": Scheme(
        parts=(Part("shaw", "self", "encoder", 1, {"add_to": "keys", "max_distance": 3}),)
    ),
}


def config(**given):
    shape = {"dim": 64, "num_heads": 4, "ff_dim": 96, "encoder_layers": 2, "decoder_layers": 3}
    return ModelConfig(**{**shape, **given})


def model_and_batch(settings, scheme, shape):
    torch.manual_seed(0)
    model = build(settings, scheme, V, V).train()
    source = torch.randint(5, V, (shape.num_pairs, shape.source_length))
    target = torch.randint(5, V, (shape.num_pairs, shape.target_length))
    return model, source, target


@pytest.mark.parametrize("scheme", SCHEMES.values(), ids=SCHEMES)
def test_flops_are_those_that_pytorch_counts(scheme):
    shape = BatchShape(num_pairs=3, source_length=13, target_length=17)
    model, source, target = model_and_batch(config(), scheme, shape)
    counted = forward_flops(config(), scheme, V, shape)
    with FlopCounterMode(display=False) as forward, torch.no_grad():
        model.project(model(source, target))
    assert counted.total == forward.get_total_flops()
    with FlopCounterMode(display=False) as training:
        label_smoothed_loss(model, source, target, target, 0.1).smoothed.backward()
    assert 3 * counted.total == pytest.approx(training.get_total_flops(), rel=0.01)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize(
    "settings",
    [
        config(attention_dropout=0.1, activation_dropout=0.1),
        config(dropout=0.0, norm="post"),
        config(activation="gelu"),
    ],
    ids=["dropout everywhere", "no dropout, post-norm", "gelu"],
)
@pytest.mark.parametrize("scheme", SCHEMES.values(), ids=SCHEMES)
@pytest.mark.parametrize("lengths", [(10, 14), (90, 60)], ids=str)
def test_activations_are_near_what_autograd_saves(scheme, settings, dtype, lengths):
    shape = BatchShape(4, *lengths)
    model, source, target = model_and_batch(settings, scheme, shape)
    weights = {p.untyped_storage().data_ptr() for p in model.parameters()}
    saved = {}

    def pack(tensor):
        saved[tensor.untyped_storage().data_ptr()] = tensor
        return tensor

    autocast = torch.autocast("cpu", dtype=dtype, enabled=dtype != torch.float32)
    with autocast, saved_tensors_hooks(pack, lambda tensor: tensor):
        label_smoothed_loss(model, source, target, target, 0.1)
    kept = [tensor for key, tensor in saved.items() if key not in weights]
    measured = sum(tensor.untyped_storage().nbytes() for tensor in kept)
    counted = activation_bytes(settings, scheme, V, shape, dtype=dtype, device="cpu").total
    if dtype != torch.float32:  # what autocast makes of the layers' own weights is no activation
        layers = [*model.encoder.named_parameters(), *model.decoder.named_parameters()]
        measured -= sum(
            2 * w.numel() for name, w in layers if w.dim() == 2 and "position" not in name
        )
    assert counted / 1.25 < measured < 1.25 * counted


@pytest.mark.parametrize(
    ("scheme", "expected"),
    [("ape", 0), ("learned", 2 * 1024 * 64), ("rpe", (2 * 2 * 33 + 3 * 2 * 17) * 16)],
)
def test_parameters_stand_under_the_part_they_belong_to(scheme, expected):
    with torch.device("meta"):
        model = build(config(), PRESETS[scheme], V, V)
    counted = count_parameters(model)
    assert counted.positions == expected
    assert counted.embeddings == V * 64
    assert counted.output == 0  # tied: counted once
    assert counted.total == sum(p.numel() for p in model.parameters())


def test_untied_tables_are_counted_each():
    with torch.device("meta"):
        model = build(config(share_embeddings=False, tie_output=False), PRESETS["ape"], V, 2 * V)
    counted = count_parameters(model)
    assert (counted.embeddings, counted.output) == (3 * V * 64, 2 * V * 64)


def test_a_kind_that_mixes_keeps_the_scores_that_a_fused_kernel_need_not():
    shape = BatchShape(2, 200, 200)
    fused, explicit = (
        activation_bytes(config(), PRESETS[name], V, shape, dtype=torch.bfloat16, device="cuda")
        for name in ("ape", "rpe")
    )
    # Softmax in fp32 and its copy in bf16, in two self-attentions.
    scores = 2 * 2 * 4 * 200 * 200 * (4 + 2)
    assert explicit.encoder - fused.encoder == pytest.approx(scores, rel=0.01)


def test_batch_size_scales_what_pairs_cost_and_not_what_they_share():
    small, large = (
        activation_bytes(
            config(),
            Scheme(parts=(Part("t5"), Part("shaw"))),
            V,
            BatchShape(count, 20, 20),
            dtype=torch.float32,
            device="cpu",
        )
        for count in (3, 30)
    )
    assert large.encoder == 10 * small.encoder
    assert small.positions < large.positions < 10 * small.positions
