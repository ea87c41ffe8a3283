"""Exports to other programs with the weights of a model: the right one agrees, and one with another
θ parts from it at position 1."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from tests.unit import tiny_models
from torch import Tensor, nn
from typer.testing import CliRunner

from shapeshift._system.errors import ShapeshiftError
from shapeshift.check import Engine, against, open_engine
from shapeshift.cli import app
from shapeshift.data.subwords import SPECIAL_PIECES
from shapeshift.decoding.capacity import Capacity
from shapeshift.model import ModelConfig, build
from shapeshift.positions import Part, Scheme

PIECES = [*SPECIAL_PIECES, *(f"piece{n}" for n in range(len(SPECIAL_PIECES), 60))]
SUBWORDS: Any = SimpleNamespace(
    source_size=60,
    target_size=60,
    source_pieces=lambda ids: [PIECES[n] for n in ids],
    target_pieces=lambda ids: [PIECES[n] for n in ids],
)
SHAPE = ModelConfig(dim=32, num_heads=4, ff_dim=32, encoder_layers=1, decoder_layers=1)
THETA = {"rope_type": "default", "rope_theta": 100.0}


def translator(**options: Any) -> Any:
    torch.manual_seed(0)
    parts = Part("rotary", "self", "encoder"), Part("rotary", "self", "decoder", options=options)
    scheme = Scheme(parts=parts)
    model = build(SHAPE, scheme, 60, 60).eval()
    with torch.no_grad():
        for parameter in model.parameters():  # so that positions matter
            parameter += 0.1 * torch.randn_like(parameter)
    return model


def llama(**settings: Any) -> Any:
    model = tiny_models.build("Llama", **settings)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.1 * torch.randn_like(parameter)
    return model


def write_onnx(model: Any, folder: Path) -> Path:
    pytest.importorskip("onnxruntime", reason="the extra onnx is not installed")
    from shapeshift.export.onnx import write

    folder.mkdir()
    write(model, folder)
    return folder


def write_causal_onnx(model: nn.Module, folder: Path) -> Path:
    """As other exporters do: with a mask and position ids."""
    pytest.importorskip("onnxruntime", reason="the extra onnx is not installed")

    class Causal(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, input_ids: Tensor, attention_mask: Tensor, position_ids: Tensor) -> Any:
            given = {"attention_mask": attention_mask, "position_ids": position_ids}
            return self.model(input_ids, **given, use_cache=False).logits

    folder.mkdir()
    B, T = torch.export.Dim("B"), torch.export.Dim("T")
    names = ["input_ids", "attention_mask", "position_ids"]
    ids = torch.tensor([[5, 6, 7], [8, 9, 10]])
    given = ids, torch.ones_like(ids), torch.arange(3).expand(2, -1).clone()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program: Any = torch.onnx.export(
            Causal().eval(), given, dynamo=True, verbose=False, input_names=names,
            output_names=["logits"], dynamic_shapes={name: {0: B, 1: T} for name in names},
        )  # fmt: skip
        program.save(folder / "model.onnx")
    return folder / "model.onnx"


def write_ctranslate2(model: Any, folder: Path) -> Path:
    pytest.importorskip("ctranslate2", reason="the extra ctranslate2 is not installed")
    from shapeshift.export.ctranslate2 import convert

    spec = convert(model, SHAPE, SUBWORDS, Capacity(64, 64))
    spec.validate()
    folder.mkdir()
    spec.save(str(folder))
    return folder


def write_causal_ctranslate2(model: nn.Module, folder: Path) -> Path:
    pytest.importorskip("ctranslate2", reason="the extra ctranslate2 is not installed")
    from ctranslate2.converters.transformers import LlamaLoader

    spec: Any = LlamaLoader().get_model_spec(deepcopy(model))  # it takes layers away
    spec.register_vocabulary(PIECES)
    spec.config.unk_token = "<unk>"
    spec.config.layer_norm_epsilon = model.config.rms_norm_eps  # type: ignore[union-attr]
    spec.validate()
    folder.mkdir()
    spec.save(str(folder))
    return folder


def write_gguf(model: Any, folder: Path) -> Path:
    """A Llama, as `convert_hf_to_gguf.py` of llama.cpp writes it: it rotates neighbours, so that
    the rows of queries and keys are in another order."""
    gguf = pytest.importorskip("gguf")
    pytest.importorskip("llama_cpp")
    config, folder = model.config, folder.with_suffix(".gguf")
    writer = gguf.GGUFWriter(folder, "llama")
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_dimension_count(config.head_dim)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    writer.add_vocab_size(config.vocab_size)
    writer.add_file_type(0)
    writer.add_tokenizer_model("llama")
    writer.add_token_list([piece.encode() for piece in PIECES])
    writer.add_token_scores([0.0] * 60)
    writer.add_token_types([3] * 5 + [1] * 55)
    names = {
        "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
        "self_attn.o_proj": "attn_output", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up",
        "mlp.down_proj": "ffn_down", "input_layernorm": "attn_norm",
        "post_attention_layernorm": "ffn_norm",
    }  # fmt: skip
    tensors = {
        "token_embd": model.model.embed_tokens.weight,
        "output_norm": model.model.norm.weight,
        "output": model.lm_head.weight,
    }
    for n, layer in enumerate(model.model.layers):
        for name, theirs in names.items():
            weight = layer.get_submodule(name).weight
            if theirs in ("attn_q", "attn_k"):
                halves = weight.view(-1, 2, config.head_dim // 2, weight.shape[1])
                weight = halves.transpose(1, 2).reshape(weight.shape)
            tensors[f"blk.{n}.{theirs}"] = weight
    for name, weight in tensors.items():
        writer.add_tensor(f"{name}.weight", weight.detach().float().numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return folder


Write = Callable[[Any, Path], Path]
OF_ONNX = pytest.mark.slow
CAUSAL = [pytest.param(write_causal_onnx, marks=OF_ONNX), write_causal_ctranslate2, write_gguf]


@pytest.mark.long
@pytest.mark.parametrize("write", CAUSAL)
def test_an_export_of_a_decoder_parts_only_with_another_theta(write: Write, tmp_path: Path) -> None:
    model, other = llama(), llama(rope_parameters=THETA)
    good, bad = (open_engine(write(x, tmp_path / name)) for x, name in ((model, "a"), (other, "b")))
    assert against(model, good, max_length=40) == []
    for pair in ((model, bad), (bad, model)):
        [parting] = against(*pair, max_length=40)
        assert (len(parting.ids), parting.position) == (2, 1)
        assert {x.outcome for x in parting.readings} == {"not measured"}
        assert {x.property: x.measured for x in parting.readings}["θ"] == "base 10000"


@pytest.mark.long
@pytest.mark.parametrize("write", [pytest.param(write_onnx, marks=OF_ONNX), write_ctranslate2])
def test_an_export_of_a_run_parts_only_with_another_theta(write: Write, tmp_path: Path) -> None:
    model, other = translator(), translator(base=100.0)
    good, bad = (open_engine(write(x, tmp_path / name)) for x, name in ((model, "a"), (other, "b")))
    assert against(model, good, max_length=40) == []
    decoder, _ = against(model, bad, max_length=40)
    assert (decoder.side, len(decoder.ids), decoder.position) == ("decoder", 2, 1)


@pytest.mark.long
def test_the_command_compares_a_model_with_its_export(tmp_path: Path) -> None:
    model = llama()
    model.save_pretrained(tmp_path / "model")
    bad = write_causal_ctranslate2(llama(rope_parameters=THETA), tmp_path / "bad")
    good = write_causal_ctranslate2(model, tmp_path / "good")
    run = CliRunner().invoke
    command = ["check", str(tmp_path / "model"), "--max-length", "20", "--against"]
    same = run(app, [*command, str(good)])
    assert same.exit_code == 0, same.output
    other = run(app, [*command, str(bad)])
    assert other.exit_code == 1
    assert "from 2 tokens on, at position 1" in other.output
    assert "only MODEL can be measured" in other.output


def fake(monkeypatch: pytest.MonkeyPatch, path: Path, model: nn.Module, file_type: str) -> Any:
    """A GGUF file with the interface of llama_cpp, which `model` runs."""

    class Llama:
        def __init__(self, name: str, n_ctx: int, logits_all: bool, **more: Any):
            assert (name, n_ctx, logits_all) == (str(path), 300, True)
            self.metadata, self.ids = {"general.file_type": file_type}, []
            self.scores = torch.zeros(n_ctx, 60).numpy()

        def reset(self) -> None:
            self.ids = []

        def eval(self, ids: list[int]) -> None:
            start = len(self.ids)
            self.ids += ids
            with torch.no_grad():
                logits = model(torch.tensor([self.ids])).logits[0, start:]
            self.scores[start : len(self.ids)] = logits.numpy()

    monkeypatch.setitem(sys.modules, "llama_cpp", SimpleNamespace(Llama=Llama))  # type: ignore
    path.write_bytes(b"GGUF")
    return open_engine(path)


def test_a_gguf_file_is_compared(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    model = llama()
    assert not against(model, fake(monkeypatch, tmp_path / "a.gguf", llama(), "0"), max_length=20)
    other = fake(monkeypatch, tmp_path / "b.gguf", llama(rope_parameters=THETA), "0")
    [parting] = against(model, other, max_length=20)
    assert (len(parting.ids), parting.position) == (2, 1)


def test_weights_of_half_precision_do_not_part(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    half = llama().half().float()
    parts = [
        against(llama(), fake(monkeypatch, tmp_path / "a.gguf", half, file_type), max_length=20)
        for file_type in "01"
    ]
    assert [bool(x) for x in parts] == [True, False]


def engine(run: Callable[..., Tensor], **more: Any) -> Engine:
    return Engine(Path("mine"), run, **more)


def test_log_probabilities_are_compared_with_logits() -> None:
    model = llama()
    assert against(model, engine(lambda ids: model(ids).logits.log_softmax(-1))) == []


def test_a_first_token_that_differs_has_no_reading() -> None:
    model = llama()
    [parting] = against(model, engine(lambda ids: 2 * model(ids).logits))
    assert (parting.position, parting.readings) == (0, ())


def fails(ids: Tensor) -> Tensor:
    raise RuntimeError("no room\nfor more")


@pytest.mark.parametrize(
    ("pair", "message"),
    [
        ((engine(fails), engine(fails)), "one of the two models must be a module"),
        ((llama(), engine(fails, is_seq2seq=True)), "one of the two models is an encoder-decoder"),
        ((llama(), engine(fails)), "mine: fails for 1 tokens .no room for more"),
        ((llama(), engine(lambda ids: torch.zeros(1, 1, 9))), "logits of other shapes"),
    ],
)
def test_what_cannot_be_compared_is_one_sentence(pair: Any, message: str) -> None:
    with pytest.raises(ShapeshiftError, match=message):
        against(*pair)


@pytest.mark.parametrize("name", ["model.gguf", "model.onnx"])
def test_a_damaged_file_is_one_sentence(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / name
    path.write_bytes(b"damaged")
    monkeypatch.setitem(sys.modules, "llama_cpp", SimpleNamespace(Llama=fails))  # type: ignore
    with pytest.raises(ShapeshiftError, match="cannot be opened"):
        open_engine(path)


def test_a_program_that_is_not_installed_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "llama_cpp", None)  # type: ignore[arg-type]
    (tmp_path / "model.gguf").touch()
    with pytest.raises(ShapeshiftError, match="pip install llama-cpp-python"):
        open_engine(tmp_path / "model.gguf")
    assert open_engine(tmp_path) is None
