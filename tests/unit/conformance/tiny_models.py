"""Small models of transformers with random weights, by architecture."""

from __future__ import annotations

from typing import Any

import torch
import transformers as hf
from torch import nn

SIZES: dict[str, Any] = {
    "vocab_size": 60,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 32,
    "max_position_embeddings": 160,
}
SEQ2SEQ: dict[str, Any] = {
    "vocab_size": 60,
    "d_model": 32,
    **{f"{side}_layers": 2 for side in ("encoder", "decoder")},
    **{f"{side}_attention_heads": 4 for side in ("encoder", "decoder")},
    **{f"{side}_ffn_dim": 32 for side in ("encoder", "decoder")},
    "max_position_embeddings": 80,
    "pad_token_id": 1,
    "decoder_start_token_id": 2,
}
GROUPED = {"num_key_value_heads": 2}
GPT2 = {"vocab_size": 60, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 160}
SPECIAL = {"bos_token_id": 2, "eos_token_id": 2}
T5 = {"vocab_size": 60, "d_model": 32, "d_kv": 8, "d_ff": 32, "num_layers": 2, "num_heads": 4}
BLOOM = {"vocab_size": 60, "hidden_size": 32, "n_layer": 2, "n_head": 4}
DYNAMIC = {"rope_type": "dynamic", "factor": 4.0, "rope_theta": 10000.0}

DECODER_ONLY: dict[str, tuple[str, dict[str, Any]]] = {
    "Llama": ("LlamaForCausalLM", SIZES | GROUPED),
    "Qwen2": ("Qwen2ForCausalLM", SIZES | GROUPED),
    "Qwen3": ("Qwen3ForCausalLM", SIZES | GROUPED | {"head_dim": 16}),
    "Mistral": ("MistralForCausalLM", SIZES | GROUPED | {"sliding_window": 16}),
    "GPT-NeoX": ("GPTNeoXForCausalLM", SIZES),
    "GPT-2": ("GPT2LMHeadModel", GPT2 | SPECIAL),
    "OPT": ("OPTForCausalLM", SIZES | {"ffn_dim": 32, "word_embed_proj_dim": 32}),
}
OTHERS: dict[str, tuple[str, dict[str, Any]]] = {
    "Gemma": ("GemmaForCausalLM", SIZES | GROUPED | {"head_dim": 8}),
    "Falcon": ("FalconForCausalLM", SIZES),
    "Falcon with ALiBi": ("FalconForCausalLM", SIZES | {"alibi": True}),
    "BLOOM": ("BloomForCausalLM", BLOOM | SPECIAL),
    "T5": ("T5ForConditionalGeneration", T5 | {"n_positions": 160}),
    "BART": ("BartForConditionalGeneration", SEQ2SEQ),
    "Marian": ("MarianMTModel", SEQ2SEQ),
    "M2M100": ("M2M100ForConditionalGeneration", SEQ2SEQ),
}
ENCODERS = {
    "BERT": ("BertLMHeadModel", SIZES),
    "RoBERTa": ("RobertaForMaskedLM", SIZES | {"pad_token_id": 1}),
}
MODERN = {f"{name}_token_id": n for n, name in enumerate(("pad", "bos", "eos", "cls", "sep"))}
WITH_FINDING = {
    "dynamic NTK": ("LlamaForCausalLM", SIZES | {"rope_parameters": DYNAMIC}),
    "ModernBERT": ("ModernBertForMaskedLM", SIZES | MODERN),
}
ALL = {**DECODER_ONLY, **OTHERS, **ENCODERS, **WITH_FINDING}


def build(name: str, **settings: Any) -> nn.Module:
    """Return a model of this architecture in evaluation mode."""
    torch.manual_seed(0)
    head, config = ALL[name]
    kind = getattr(hf, head)
    model: nn.Module = kind(kind.config_class(**{**config, **settings}))
    return model.eval()
