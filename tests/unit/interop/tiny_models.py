"""Tiny Hugging Face models with random weights, one for each family."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import metadata
from typing import Any

import pytest
import torch
from torch import Tensor, nn

os.environ["HF_HUB_OFFLINE"] = "1"

CLIP = "" if int(metadata.version("transformers").split(".")[0]) >= 5 else "text_model."
"""Where transformers has the embeddings of CLIP's text model."""

ROWS = 40
"""Positions that a tiny model has room for."""

ENCODER = {
    "vocab_size": 50,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 16,
    "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
}
SEQ2SEQ = {
    "vocab_size": 50,
    "d_model": 16,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 2,
    "decoder_attention_heads": 2,
    "encoder_ffn_dim": 16,
    "decoder_ffn_dim": 16,
    "dropout": 0.0,
    "attention_dropout": 0.0,
    "activation_dropout": 0.0,
    "pad_token_id": 1,
    "decoder_start_token_id": 2,
}
GPT: dict[str, Any] = {
    "vocab_size": 50,
    "n_embd": 16,
    "n_layer": 2,
    "n_head": 2,
    "resid_pdrop": 0.0,
    "embd_pdrop": 0.0,
    "attn_pdrop": 0.0,
    "bos_token_id": 2,
    "eos_token_id": 2,
}
MORE: dict[str, dict[str, Any]] = {
    "GPT2": GPT,
    "GPTBigCode": GPT,
    "OPT": {
        "vocab_size": 50,
        "hidden_size": 16,
        "word_embed_proj_dim": 16,
        "ffn_dim": 16,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "dropout": 0.0,
    },
    "DistilBert": {
        "vocab_size": 50,
        "dim": 16,
        "n_layers": 2,
        "n_heads": 2,
        "hidden_dim": 16,
        "dropout": 0.0,
        "attention_dropout": 0.0,
    },
    "GPTNeo": {
        "vocab_size": 50,
        "hidden_size": 16,
        "num_layers": 2,
        "attention_types": [[["global", "local"], 1]],
        "num_heads": 2,
        "embed_dropout": 0.0,
        "bos_token_id": 2,
        "eos_token_id": 2,
    },
    "XGLM": {
        "vocab_size": 50,
        "d_model": 16,
        "ffn_dim": 16,
        "num_layers": 2,
        "attention_heads": 2,
        "dropout": 0.0,
        "attention_dropout": 0.0,
        "activation_dropout": 0.0,
        "pad_token_id": 1,
    },
    "CLIPText": {
        "vocab_size": 50,
        "hidden_size": 16,
        "intermediate_size": 16,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "eos_token_id": 49,
        "bos_token_id": 48,
        "projection_dim": 16,
    },
    "FSMT": {**SEQ2SEQ, "langs": ["de", "en"], "src_vocab_size": 50, "tgt_vocab_size": 50},
    "Speech2Text": {**SEQ2SEQ, "input_feat_per_channel": 4, "conv_channels": 8},
    "TrOCR": {**SEQ2SEQ, "is_decoder": True},
    "LED": {**SEQ2SEQ, "attention_window": 6},
    "NllbMoe": {**SEQ2SEQ, "num_experts": 2, "encoder_sparse_step": 0, "decoder_sparse_step": 0},
    "Whisper": {
        **SEQ2SEQ,
        "max_source_positions": 10,
        "num_mel_bins": 4,
        "bos_token_id": 2,
        "eos_token_id": 3,
        "suppress_tokens": None,
        "begin_suppress_tokens": None,
    },
}


@dataclass(frozen=True)
class Example:
    """A family: its class, the settings, its position embeddings, where rows begin."""

    head: str
    modules: tuple[str, ...]
    first: int = 0
    """The row of the first token."""
    padding: int | None = None
    """The row of padding."""
    table: str = "weight"
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Of the configuration, besides those of the family."""

    @property
    def family(self) -> str:
        return re.sub("(LMHead|MT)?Model$|For.*", "", self.head)

    def build(self, positions: int = ROWS) -> nn.Module:
        """Return a model with fresh weights, in training mode, and without dropout."""
        transformers = pytest.importorskip("transformers")
        torch.manual_seed(0)
        settings = dict(MORE.get(self.family, SEQ2SEQ if len(self.modules) > 1 else ENCODER))
        sizes = {
            "GPT2": ["n_positions"],
            "GPTBigCode": ["n_positions"],
            "LED": ["max_encoder_position_embeddings", "max_decoder_position_embeddings"],
            "Speech2Text": ["max_source_positions", "max_target_positions"],
            "Whisper": ["max_target_positions"],
        }.get(self.family, ["max_position_embeddings"])
        settings |= dict.fromkeys(sizes, positions)
        if self.family in ("Roberta", "XLMRoberta", "Camembert", "MPNet", "BigBird"):
            settings["pad_token_id"] = 1
        config = getattr(transformers, f"{self.family}Config")(**settings, **self.settings)
        model = getattr(transformers, self.head)(config).train()
        if self.family == "FSMT":
            for name in self.modules:
                model.get_submodule(name).requires_grad_(False)  # transformers 5 would train it
        return model

    def inputs(self, ids: Tensor) -> dict[str, Tensor]:
        """Return the arguments of a call with these ids, source and target alike."""
        if self.family == "Whisper":
            features = torch.ones(ids.shape[0], 4, 20)
            return {"input_features": features, "decoder_input_ids": ids}
        if self.family == "Speech2Text":  # four frames are a position of the encoder
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
