"""Write tiny checkpoints of other libraries, with what they compute: the files in this folder.

    python make.py transformers     # pip install 'transformers<5'; written with 4.57.6
    python make.py opennmt          # pip install --no-deps OpenNMT-py; 3.5.1
    python make.py fairseq2         # pip install --no-deps fairseq2; 0.8.1

Each needs an environment of its own with torch and safetensors. A file has the weights by the names
that the library saves, and under `recorded.` the inputs and outputs.
"""

from __future__ import annotations

import json
import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from unittest.mock import MagicMock

import torch
from safetensors.torch import save_file

FOLDER = Path(__file__).parent
BERT = {
    "vocab_size": 40, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2,
    "intermediate_size": 24, "max_position_embeddings": 14, "type_vocab_size": 2,
}  # fmt: skip
CASES = {
    "bert-key": ("BertForMaskedLM", {"position_embedding_type": "relative_key"}),
    "bert-key-query": ("BertForMaskedLM", {"position_embedding_type": "relative_key_query"}),
    "bert-decoder": (
        "BertLMHeadModel", {"position_embedding_type": "relative_key_query", "is_decoder": True}
    ),
    "electra": (
        "ElectraForMaskedLM", {"position_embedding_type": "relative_key_query", "embedding_size": 8}
    ),
    "roberta": ("RobertaForMaskedLM", {"position_embedding_type": "relative_key"}),
}  # fmt: skip
"""Name of the file → class and settings."""


def randomise(model: torch.nn.Module) -> None:
    torch.manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=0.4)


def save(name: str, model: torch.nn.Module, recorded: dict, settings: dict) -> None:
    weights = {key: value.clone() for key, value in model.state_dict().items()}
    weights |= {f"recorded.{key}": value.contiguous() for key, value in recorded.items()}
    save_file(weights, FOLDER / f"{name}.safetensors", {"settings": json.dumps(settings)})


@torch.no_grad()
def transformers() -> None:
    library = import_module("transformers")
    for name, (head, settings) in CASES.items():
        kind = getattr(library, head)
        model = kind(kind.config_class(**BERT, **settings)).eval()
        randomise(model)
        ids = torch.randint(4, 40, (2, 9))
        mask = torch.ones_like(ids)
        mask[1, 6:] = 0
        # With a cache, it places all queries of a call at the last position.
        options = {"use_cache": False} if "is_decoder" in settings else {}
        logits = model(ids, attention_mask=mask, **options).logits
        recorded = {"input_ids": ids, "attention_mask": mask, "logits": logits}
        save(name, model, recorded, {**BERT, **settings})


@torch.no_grad()
def opennmt() -> None:
    # The attention's file alone: the package itself imports much else.
    [folder] = find_spec("onmt").submodule_search_locations
    for name in ("onmt", "onmt.modules"):
        sys.modules[name] = ModuleType(name)
        sys.modules[name].__path__ = [str(Path(folder, *name.split(".")[1:]))]
    attention = import_module("onmt.modules.multi_headed_attn").MultiHeadedAttention
    for name, bias in (("opennmt", True), ("opennmt-no-bias", False)):
        model = attention(
            2, 16, 0.0, is_decoder=False, max_relative_positions=3, attn_type="self",
            add_qkvbias=bias,
        ).eval()  # fmt: skip
        randomise(model)
        x = torch.randn(2, 9, 16)
        mask = torch.zeros(2, 9, dtype=torch.bool)
        mask[1, 6:] = True
        out, _ = model(x, x, x, mask[:, None, None])
        save(name, model, {"x": x, "padding": mask, "out": out}, {"num_heads": 2})


@torch.no_grad()
def fairseq2() -> None:
    # Its library in C++ reads data and needs one build of torch; attention does without.
    for name in ("", ".bindings", ".bindings.data", ".bindings.data.data_pipeline"):
        sys.modules[f"fairseq2n{name}"] = MagicMock()
    library = import_module("fairseq2.models.transformer")
    layout = import_module("fairseq2.nn").BatchLayout
    shaw = import_module("fairseq2.models.transformer.sdpa.shaw").ShawRelativePositionSDPA
    biases = import_module("fairseq2.models.transformer.attention_bias")
    for name, left, right, values in (("fairseq2", 3, 3, True), ("fairseq2-keys", 5, 2, False)):
        scores = shaw(
            16, 2, biases.IdentityBias(), left, max_rhs_rel_pos=right, use_rel_pos_values=values
        )
        model = library.StandardMultiheadAttention(16, 2, scores).eval()
        randomise(model)
        x = torch.randn(2, 9, 16)
        lengths = layout.of(x, [9, 6])
        out = model(x, lengths, x, lengths, x, library.AttentionBiasCache())
        mask = torch.arange(9) >= torch.tensor([[9], [6]])
        settings = {"num_heads": 2, "max_right": right}
        save(name, model, {"x": x, "padding": mask, "out": out}, settings)


if __name__ == "__main__":
    {"transformers": transformers, "opennmt": opennmt, "fairseq2": fairseq2}[sys.argv[1]]()
