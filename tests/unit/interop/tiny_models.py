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

SIZES = {
    **dict.fromkeys(("vocab_size", "src_vocab_size", "tgt_vocab_size"), 50),
    **dict.fromkeys(
        ("hidden_size", "d_model", "n_embd", "dim", "word_embed_proj_dim", "projection_dim"), 16
    ),
    **dict.fromkeys(
        ("intermediate_size", "ffn_dim", "hidden_dim", "encoder_ffn_dim", "decoder_ffn_dim"), 16
    ),
    **dict.fromkeys(
        ("num_hidden_layers", "n_layer", "n_layers", "encoder_layers", "decoder_layers"), 2
    ),
    **dict.fromkeys(
        ("num_attention_heads", "n_head", "n_heads", "num_heads", "attention_heads"), 2
    ),
    **dict.fromkeys(("encoder_attention_heads", "decoder_attention_heads"), 2),
    **dict.fromkeys(("resid_pdrop", "embd_pdrop", "attn_pdrop", "dropout", "embed_dropout"), 0.0),
    **dict.fromkeys(("hidden_dropout_prob", "attention_probs_dropout_prob"), 0.0),
    **dict.fromkeys(("attention_dropout", "activation_dropout"), 0.0),
}
"""Sizes by all the names that families have for them; a configuration takes its own."""

MORE: dict[str, dict[str, Any]] = {
    "GPTNeo": {"num_layers": 2, "attention_types": [[["global", "local"], 1]]},
    "XGLM": {"num_layers": 2, "pad_token_id": 1},
    "CLIPText": {"eos_token_id": 49, "bos_token_id": 48},
    "FSMT": {"langs": ["de", "en"]},
    "Speech2Text": {"input_feat_per_channel": 4, "conv_channels": 8},
    "TrOCR": {"is_decoder": True},
    "LED": {"attention_window": 6},
    "NllbMoe": {"num_experts": 2, "encoder_sparse_step": 0, "decoder_sparse_step": 0},
    "Whisper": {
        "max_source_positions": 10,
        "num_mel_bins": 4,
        "suppress_tokens": None,
        "begin_suppress_tokens": None,
    },
}
PADDING_1 = ("Roberta", "XLMRoberta", "Camembert", "MPNet", "BigBird", "BioGpt", "OPT")
"""Families besides the encoder-decoders whose padding is set to 1."""


def config_of(family: str, **settings: Any) -> Any:
    """Return a configuration of transformers for a tiny model without dropout."""
    transformers = pytest.importorskip("transformers")
    make = getattr(transformers, f"{family}Config")
    known = vars(make()).keys() | getattr(make, "attribute_map", {}).keys()
    sizes = {name: size for name, size in SIZES.items() if name in known}
    settings = {"bos_token_id": 2, "eos_token_id": 3, **MORE.get(family, {}), **settings}
    return make(**sizes, **settings)


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
        settings = dict(self.settings)
        if len(self.modules) > 1 or self.family in ("Whisper", "TrOCR"):
            settings |= {"pad_token_id": 1, "decoder_start_token_id": 2}
        elif self.family in PADDING_1:
            settings["pad_token_id"] = 1
        sizes = {
            "GPT2": ["n_positions"],
            "GPTBigCode": ["n_positions"],
            "LED": ["max_encoder_position_embeddings", "max_decoder_position_embeddings"],
            "Speech2Text": ["max_source_positions", "max_target_positions"],
            "Whisper": ["max_target_positions"],
        }.get(self.family, ["max_position_embeddings"])
        config = config_of(self.family, **dict.fromkeys(sizes, positions), **settings)
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
