"""Tiny Hugging Face models with random weights."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from importlib import metadata
from typing import Any

import pytest
import torch
from torch import Tensor, nn

os.environ["HF_HUB_OFFLINE"] = "1"
hf = pytest.importorskip("transformers")

SIZES: dict[str, Any] = {
    **dict.fromkeys(("vocab_size", "src_vocab_size", "tgt_vocab_size"), 60),
    **dict.fromkeys(
        ("hidden_size", "d_model", "n_embd", "dim", "word_embed_proj_dim", "projection_dim"), 32
    ),
    **dict.fromkeys(
        ("intermediate_size", "ffn_dim", "hidden_dim", "encoder_ffn_dim", "decoder_ffn_dim"), 32
    ),
    **dict.fromkeys(
        ("num_hidden_layers", "n_layer", "n_layers", "encoder_layers", "decoder_layers"), 2
    ),
    **dict.fromkeys(
        ("num_attention_heads", "n_head", "n_heads", "num_heads", "attention_heads"), 4
    ),
    **dict.fromkeys(("encoder_attention_heads", "decoder_attention_heads"), 4),
    "num_key_value_heads": 4,
    "head_dim": 8,
    "vocab_size_per_layer_input": 60,
    **dict.fromkeys(("qk_nope_head_dim", "qk_rope_head_dim", "hidden_size_per_layer_input"), 8),
    **dict.fromkeys(("kv_lora_rank", "q_lora_rank", "v_head_dim"), 12),
    **dict.fromkeys(("num_experts", "n_routed_experts", "num_local_experts"), 4),
    **dict.fromkeys(("n_group", "topk_group"), 1),
    "moe_intermediate_size": 32,
    "num_experts_per_tok": 2,
    **dict.fromkeys(("resid_pdrop", "embd_pdrop", "attn_pdrop", "dropout", "embed_dropout"), 0.0),
    **dict.fromkeys(("hidden_dropout_prob", "attention_probs_dropout_prob"), 0.0),
    **dict.fromkeys(("attention_dropout", "activation_dropout", "hidden_dropout"), 0.0),
}
"""Sizes by all the names that families have for them; a configuration takes its own."""

ROWS = (
    "n_positions", "max_position_embeddings", "max_source_positions", "max_target_positions",
    "max_encoder_position_embeddings", "max_decoder_position_embeddings",
)  # fmt: skip

MORE: dict[str, dict[str, Any]] = {
    "GPTNeoForCausalLM": {"num_layers": 2, "attention_types": [[["global", "local"], 1]]},
    "XGLMForCausalLM": {"num_layers": 2},
    "CLIPTextModel": {"eos_token_id": 49, "bos_token_id": 48},
    "FSMTForConditionalGeneration": {"langs": ["de", "en"]},
    "PerceiverForMaskedLM": {
        "num_latents": 8, "d_latents": 32, "num_self_attends_per_block": 1,
        "num_self_attention_heads": 4, "num_cross_attention_heads": 4,
    },
    "FalconH1ForCausalLM": {
        "mamba_d_ssm": 32, "mamba_n_heads": 4, "mamba_d_head": 8, "mamba_d_state": 16,
        "mamba_chunk_size": 16,
    },
    "LongcatFlashForCausalLM": {"zero_expert_num": 4, "num_layers": 2},
    "Speech2TextForConditionalGeneration": {"input_feat_per_channel": 4, "conv_channels": 8},
    "TrOCRForCausalLM": {"is_decoder": True},
    "LEDForConditionalGeneration": {"attention_window": 6},
    "NllbMoeForConditionalGeneration": {
        "num_experts": 2, "encoder_sparse_step": 0, "decoder_sparse_step": 0
    },
    "WhisperForConditionalGeneration": {
        "max_source_positions": 10, "num_mel_bins": 4, "suppress_tokens": None,
        "begin_suppress_tokens": None,
    },
    "T5ForConditionalGeneration": {"d_kv": 8, "d_ff": 32, "num_layers": 2},
    "FlintForCausalLM": {
        "layer_types": ["sliding_attention", "full_attention"], "sliding_window": 4
    },
    "GPTJForCausalLM": {"rotary_dim": 2},
    "CodeGenForCausalLM": {"rotary_dim": 2},
    "Gemma3nForCausalLM": {"num_kv_shared_layers": 0, "laurel_rank": 8},
    "LukeForMaskedLM": {"entity_vocab_size": 60, "entity_emb_size": 32},
    "MiniCPM3ForCausalLM": {"head_dim": 16},
    "BailingHybridForCausalLM": {"layer_types": ["linear_attention", "full_attention"]},
    "KimiLinearForCausalLM": {"layer_types": ["linear_attention", "full_attention"]},
    "Qwen3NextForCausalLM": {"layer_types": ["linear_attention", "full_attention"]},
    "Qwen3_5ForCausalLM": {"layer_types": ["linear_attention", "full_attention"]},
    "Qwen3_5MoeForCausalLM": {"layer_types": ["linear_attention", "full_attention"]},
    "Lfm2ForCausalLM": {"layer_types": ["conv", "full_attention"]},
    "Lfm3ForCausalLM": {"layer_types": ["conv", "full_attention"]},
    "JambaForCausalLM": {"attn_layer_period": 2, "attn_layer_offset": 1},
    "RecurrentGemmaForCausalLM": {"block_types": ["recurrent", "attention"]},
}  # fmt: skip


def make(head: str, positions: int = 160, **settings: Any) -> Any:
    """Return a model of this class in evaluation mode, without dropout."""
    torch.manual_seed(0)
    kind = getattr(hf, head)
    default = kind.config_class()
    if hasattr(default, "text_config") and hasattr(default, "vision_config"):
        assert not settings
        return make_with_images(head)
    known = vars(default).keys() | getattr(default, "attribute_map", {}).keys()
    sizes = {**SIZES, **dict.fromkeys(ROWS, positions)}
    special = {"pad_token_id": 1, "bos_token_id": 2, "eos_token_id": 3, "decoder_start_token_id": 2}
    config = {name: value for name, value in (sizes | special).items() if name in known}
    return kind(kind.config_class(**{**config, **MORE.get(head, {}), **settings})).eval()


VISION: dict[str, Any] = {
    **dict.fromkeys(("depth", "num_hidden_layers"), 1),
    **dict.fromkeys(("hidden_size", "embed_dim", "hidden_dim", "intermediate_size"), 16),
    **dict.fromkeys(("num_heads", "num_attention_heads"), 2),
    "patch_size": 4, "image_size": 32, "deepstack_visual_indexes": [],
}  # fmt: skip


def make_with_images(head: str, axes: bool = True) -> Any:
    """Return a model of this class, which reads text and images; three axes rotate its 8 pairs, if
    its positions have `axes`."""
    kind = getattr(hf, head)
    default = kind.config_class()
    # Some classes read no `head_dim`.
    text = {**SIZES, "hidden_size": 64, "head_dim": 16, "layer_types": 2 * ["full_attention"]}
    text |= {"pad_token_id": 1, "bos_token_id": 2, "eos_token_id": 3}
    parts = {"text_config": text, "vision_config": {**VISION, "out_hidden_size": 64}}
    settings: dict[str, Any] = {}
    for part, sizes in parts.items():
        old = getattr(default, part)
        known = vars(old).keys() | getattr(old, "attribute_map", {}).keys()
        settings[part] = {name: value for name, value in sizes.items() if name in known}
    parameters = dict(default.text_config.rope_parameters)
    pairs = int(8 * parameters.get("partial_rotary_factor", 1))
    if axes:
        parameters["mrope_section"] = [pairs - 2 * (pairs // 3), pairs // 3, pairs // 3]
    settings["text_config"]["rope_parameters"] = parameters
    tokens = ("image_token_id", "video_token_id", "vision_start_token_id", "vision_end_token_id")
    settings |= {name: n for n, name in enumerate(tokens, start=5) if hasattr(default, name)}
    torch.manual_seed(0)
    return kind(kind.config_class(**settings)).eval()


def ids(rows: int = 2, length: int = 12) -> Tensor:
    """Return tokens `(B, T)`, none of them special."""
    return torch.randint(4, 60, (rows, length), generator=torch.Generator().manual_seed(1))


def logits(model: nn.Module, *args: Any, **kwargs: Any) -> Tensor:
    """Return the logits of a call, or hidden states where there is no head."""
    with torch.no_grad():
        out = model(*args, **kwargs)
    found: Tensor = out.logits if "logits" in out else out[0]
    return found


GROUPED = {"num_key_value_heads": 2}
DECODER_ONLY: dict[str, tuple[str, dict[str, Any]]] = {
    "Llama": ("LlamaForCausalLM", GROUPED),
    "Qwen2": ("Qwen2ForCausalLM", GROUPED),
    "Qwen3": ("Qwen3ForCausalLM", GROUPED | {"head_dim": 16}),
    "Mistral": ("MistralForCausalLM", GROUPED | {"sliding_window": 16}),
    "GPT-NeoX": ("GPTNeoXForCausalLM", {}),
    "GPT-2": ("GPT2LMHeadModel", {}),
    "OPT": ("OPTForCausalLM", {}),
}
ARCHITECTURES: dict[str, tuple[str, dict[str, Any]]] = {
    **DECODER_ONLY,
    "Gemma": ("GemmaForCausalLM", GROUPED | {"head_dim": 8}),
    "Falcon": ("FalconForCausalLM", {}),
    "Falcon with ALiBi": ("FalconForCausalLM", {"alibi": True}),
    "BLOOM": ("BloomForCausalLM", {}),
    "T5": ("T5ForConditionalGeneration", {}),
    "BART": ("BartForConditionalGeneration", {"positions": 80}),
    "Marian": ("MarianMTModel", {"positions": 80}),
    "M2M100": ("M2M100ForConditionalGeneration", {"positions": 80}),
    "BERT": ("BertLMHeadModel", {}),
    "RoBERTa": ("RobertaForMaskedLM", {}),
}
WITH_FINDING = {
    "ModernBERT": ("ModernBertForMaskedLM", {"cls_token_id": 4, "sep_token_id": 5}),
}


def build(name: str, **settings: Any) -> Any:
    """Return a model of one of these architectures, or of a class."""
    head, more = (ARCHITECTURES | WITH_FINDING).get(name, (name, {}))
    return make(head, **{**more, **settings})


@dataclass(frozen=True)
class Example:
    """A model with absolute positions: its class, its position embeddings, the row of the first
    token, and of padding."""

    head: str
    modules: tuple[str, ...]
    first: int = 0
    padding: int | None = None
    table: str = "weight"
    settings: dict[str, Any] = field(default_factory=dict)

    def build(self, positions: int = 40) -> nn.Module:
        """Return a model with fresh weights, in training mode."""
        model: nn.Module = make(self.head, positions, **self.settings).train()
        if self.head.startswith("FSMT"):
            for name in self.modules:
                model.get_submodule(name).requires_grad_(False)  # transformers 5 would train it
        return model

    def inputs(self, ids: Tensor) -> dict[str, Tensor]:
        """Return the arguments of a call with these ids, source and target alike."""
        if self.head.startswith("Whisper"):
            features = torch.ones(ids.shape[0], 4, 20)
            return {"input_features": features, "decoder_input_ids": ids}
        if self.head.startswith("Speech2Text"):  # four frames are a position of the encoder
            mask = (ids != 1).long().repeat_interleave(4, 1)
            both = {"input_features": torch.ones(*mask.shape, 4), "attention_mask": mask}
            return {**both, "decoder_input_ids": ids}
        both = {"input_ids": ids, "attention_mask": (ids != 1).long()}
        return {**both, "decoder_input_ids": ids} if len(self.modules) > 1 else both

    def outputs(self, model: nn.Module, ids: Tensor) -> Tensor:
        """Return the logits of a call, or hidden states where there is no head."""
        out = model(**self.inputs(ids))
        return out.logits if "logits" in out else out.last_hidden_state

    def rows(self, model: nn.Module, name: str) -> Tensor:
        """Return the table of the position embedding `name`."""
        return getattr(model.get_submodule(name), self.table).detach()


# Where transformers has the embeddings of CLIP's text model.
CLIP = "" if int(metadata.version("transformers").split(".")[0]) >= 5 else "text_model."
SIDES = ("model.encoder.embed_positions", "model.decoder.embed_positions")
LEARNED = {
    "bert": Example("BertForMaskedLM", ("bert.embeddings.position_embeddings",)),
    "electra": Example("ElectraForMaskedLM", ("electra.embeddings.position_embeddings",)),
    "roberta": Example("RobertaForMaskedLM", ("roberta.embeddings.position_embeddings",), 2, 1),
    "xlm-r": Example("XLMRobertaForMaskedLM", ("roberta.embeddings.position_embeddings",), 2, 1),
    "gpt2": Example("GPT2LMHeadModel", ("transformer.wpe",)),
    "albert": Example(
        "AlbertForMaskedLM",
        ("albert.embeddings.position_embeddings",),
        settings={"embedding_size": 16},
    ),
    "bigbird": Example(
        "BigBirdForMaskedLM",
        ("bert.embeddings.position_embeddings",),
        settings={"attention_type": "original_full", "sep_token_id": 3},
    ),
    "camembert": Example("CamembertForMaskedLM", ("roberta.embeddings.position_embeddings",), 2, 1),
    "clip": Example("CLIPTextModel", (f"{CLIP}embeddings.position_embedding",)),
    "distilbert": Example("DistilBertForMaskedLM", ("distilbert.embeddings.position_embeddings",)),
    "biogpt": Example("BioGptForCausalLM", ("biogpt.embed_positions",), 2),
    "gpt-bigcode": Example("GPTBigCodeForCausalLM", ("transformer.wpe",)),
    "gpt-neo": Example("GPTNeoForCausalLM", ("transformer.wpe",)),
    "led": Example(
        "LEDForConditionalGeneration",
        ("led.encoder.embed_positions", "led.decoder.embed_positions"),
    ),
    "mpnet": Example("MPNetForMaskedLM", ("mpnet.embeddings.position_embeddings",), 2, 1),
    "opt": Example("OPTForCausalLM", SIDES[1:], 2, 1),
    "bart": Example("BartForConditionalGeneration", SIDES, 2),
    "mbart": Example("MBartForConditionalGeneration", SIDES, 2),
    "plbart": Example("PLBartForConditionalGeneration", SIDES, 2),
    "blenderbot": Example("BlenderbotForConditionalGeneration", SIDES),
    "bigbird-pegasus": Example(
        "BigBirdPegasusForConditionalGeneration",
        SIDES,
        settings={"attention_type": "original_full"},
    ),
    "mvp": Example("MvpForConditionalGeneration", SIDES, 2),
    "trocr": Example("TrOCRForCausalLM", SIDES[1:], 2),
    "whisper": Example("WhisperForConditionalGeneration", SIDES[1:]),
}
SINUSOIDAL = {
    "marian": Example("MarianMTModel", SIDES),
    "pegasus": Example("PegasusForConditionalGeneration", SIDES),
    "m2m100": Example("M2M100ForConditionalGeneration", SIDES, 2, 1, "weights"),
    "nllb-moe": Example("NllbMoeForConditionalGeneration", SIDES, 2, 1, "weights"),
    "fsmt": Example("FSMTForConditionalGeneration", SIDES, 2, 1),
    "speech2text": Example("Speech2TextForConditionalGeneration", SIDES, 2, 1, "weights"),
    "xglm": Example("XGLMForCausalLM", ("model.embed_positions",), 2, table="weights"),
    "trocr-sinusoidal": Example(
        "TrOCRForCausalLM", SIDES[1:], 2, 1, "weights", {"use_learned_position_embeddings": False}
    ),
}
ALL = {**LEARNED, **SINUSOIDAL}
