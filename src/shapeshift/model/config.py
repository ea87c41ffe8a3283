"""The shape of a model, as the user sets it."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, ValidationInfo, field_validator, model_validator

from shapeshift._system.schema import Strict

SIZES: dict[str, dict[str, Any]] = {
    "tiny": {"dim": 128, "num_heads": 4, "ff_dim": 512, "encoder_layers": 2, "decoder_layers": 2},
    "small": {"dim": 256, "num_heads": 4, "ff_dim": 1024, "encoder_layers": 3, "decoder_layers": 3},
    "base": {"dim": 512, "num_heads": 8, "ff_dim": 2048, "encoder_layers": 6, "decoder_layers": 6},
    "big": {"dim": 1024, "num_heads": 16, "ff_dim": 4096, "encoder_layers": 6, "decoder_layers": 6},
}
"""`base` and `big` are transformer-base and -big (Vaswani et al. 2017, Table 3)."""


class ModelConfig(Strict):
    """An encoder-decoder Transformer (Vaswani et al. 2017).

    `size` sets the default of the other size fields; each field can also be set separately.
    """

    size: Literal["tiny", "small", "base", "big"] = Field(
        "base", description="sets the default of D, H, the inner width and the numbers of layers"
    )
    dim: int = Field(512, ge=4, description="D, model width")
    num_heads: int = Field(8, ge=1, description="H, number of attention heads")
    ff_dim: int = Field(2048, ge=1, description="inner width of the feed-forward layers")
    encoder_layers: int = Field(6, ge=1, description="number of encoder layers")
    decoder_layers: int = Field(6, ge=1, description="number of decoder layers")
    norm: Literal["pre", "post"] = Field(
        "pre", description="LayerNorm before each sublayer, or after it as in the 2017 paper"
    )
    activation: Literal["relu", "gelu", "silu"] = Field(
        "relu", description="activation of the feed-forward layers"
    )
    dropout: float = Field(
        0.1, ge=0, lt=1, description="dropout of embeddings and residual branches"
    )
    attention_dropout: float = Field(
        0.0, ge=0, lt=1, description="dropout of attention probabilities"
    )
    activation_dropout: float = Field(0.0, ge=0, lt=1, description="dropout after the activation")
    share_embeddings: bool = Field(True, description="use one table for source and target")
    tie_output: bool = Field(True, description="use the target table as the output projection")
    output_bias: bool = Field(False, description="add a trained bias to each token's logit")

    @model_validator(mode="before")
    @classmethod
    def _fill_from_size(cls, given: Any) -> Any:
        if isinstance(given, dict):
            return {**SIZES.get(str(given.get("size", "base")), {}), **given}
        return given

    @property
    def depths(self) -> dict[str, int]:
        """Stack → its number of layers."""
        return {"encoder": self.encoder_layers, "decoder": self.decoder_layers}

    @field_validator("num_heads")
    @classmethod
    def _check_heads(cls, num_heads: int, info: ValidationInfo) -> int:
        dim = info.data.get("dim", num_heads)
        if dim % num_heads:
            raise ValueError(f"dim {dim} is not a multiple of num_heads {num_heads}")
        return num_heads
