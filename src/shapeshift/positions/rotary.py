"""Rotary positions (Su et al. 2021) and their scaling to longer texts."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import torch
from torch import Tensor

from shapeshift import kernels
from shapeshift._system.errors import ShapeshiftError

from . import rope_config
from .base import Representation
from .checks import as_positions, bounds, check_positive, exact_dtype, whole_number
from .released import plain, released
from .turns import Turn

Pairs = Literal["interleaved", "halves"]


class Rotary(Representation):
    """RoPE: rotates pairs of channels of queries and keys by angles proportional to the position
    (Su et al. 2021, section 3.4.2).

        q_i -> R(i) q_i,  k_j -> R(j) k_j,  so that  q_i^T R(i)^T R(j) k_j = q_i^T R(j - i) k_j
        R(i) rotates pair m by i·θ_m,  θ_m = base^(-2m / r),  m = 0 … r/2 - 1

    r channels rotate, all E in the paper. Angles are computed in float64 and the rotation in at
    least float32, so that it is exact at any position. No table limits the length.

    `scaling` lets a trained model read texts `factor` = s times as long:

        linear  θ -> θ / s (position interpolation, Chen et al. 2023)
        ntk     base -> base · s^(r / (r - 2)) (Peng et al. 2023, section 3.1)
        yarn    θ -> (1 - γ) θ / s + γ θ,  γ = (n - 1) / (32 - 1) within 0 and 1,
                n = original_length · θ / 2π, how often a pair rotates in the old length
                (Peng et al. 2023, section 3.2), and scores divided by a temperature t
                (section 3.4), sqrt(1/t) = 0.1 ln(s) + 1

    Released language models differ from these formulas: in the released YaRN code, γ is a ramp over
    the pair's index m, not over n, with bounds rounded to whole pairs, and the temperature does not
    apply to channels that do not rotate. `from_config` builds the positions of such a model from
    its configuration. It sets `rope_parameters`, which replace all formulas above by those of the
    release: `default`, `linear`, `dynamic`, `yarn`, `longrope` (Ding et al. 2024), `llama3`
    (Llama 3.1) or `proportional` (Gemma 4). Then θ is computed in float32, as the model was
    trained, and is equal to that of transformers to the last bit; angles are in float64 from there.
    cos and sin are multiplied by the attention factor.

    θ of `dynamic` and `longrope` depends on how long a sequence is. If θ changed while a sequence
    grows, cached keys would have another θ than new queries. So `length` selects one θ, and a
    position for which the release would have another is an error. (On a GPU and in a compiled or
    exported model, only the number of tokens is checked, because reading positions would be slow.)

    With `sections`, positions have several axes, `(B|1, T, A)`, and each axis rotates a section of
    the pairs: M-RoPE (Wang et al. 2024, Qwen2-VL, section 2.1), with axes for time, row and column.

    In cross-attention, queries rotate by their position in the target and keys by their position in
    the source: the score depends on the difference of the two, and a translation roughly follows
    the order of its source. The paper has self-attention only.

    Rotates queries and keys by their positions, so that scores depend on distances. It has no
    parameters, and most language models use it; choose it first for them. `scaling` extends a
    trained model to longer texts.

    Args:
        head_dim: E.
        base: frequencies θ fall from 1 towards 1 / base; 10000 in the paper.
        pairs: which channels rotate together: `interleaved` 2m and 2m + 1 (the paper), `halves` m
            and m + r/2 (GPT-NeoX, Llama).
        fraction: r / E; r is rounded down to an even number, but not below 2.
        scaling: method that extends a trained model to longer texts.
        factor: s, above 1; 1 without scaling.
        original_length: length of training texts, in subwords; `yarn` needs it.
        rope_parameters: those of a released model, with the names of transformers 5 (`rope_type`,
            `rope_theta` and so on), in place of the options from `base` on, except `pairs`.
        length: the most tokens of a sequence, those that will be generated included; for
            `rope_parameters` of type `dynamic` and `longrope`, which need it.
        sections: number of pairs that each axis of a position rotates, in order; [16, 24, 24] in
            Qwen2-VL. None is one axis.
        section_order: where these pairs are: one section after the other in `blocks`; or
            `interleaved`, in turn as long as an axis has pairs left, the rest for the first axis
            (Qwen3-VL).

    Attributes:
        attention_factor: sqrt(1/t): queries and keys are multiplied by it; of `rope_parameters`,
            their channels that rotate.

    Raises:
        ShapeshiftError: for a number out of range, or settings that contradict each other; in
            `rotate`, for heads of another width or without one position for each token, or for a
            position from `length` on that would need another θ.
    """

    places = ("self", "cross")
    shift_invariant = True

    def __init__(
        self,
        *,
        head_dim: int,
        base: float = 10000.0,
        pairs: Pairs = "interleaved",
        fraction: float = 1.0,
        scaling: Literal["none", "linear", "ntk", "yarn"] = "none",
        factor: float = 1.0,
        original_length: int | None = None,
        rope_parameters: Mapping[str, Any] | None = None,
        length: int | None = None,
        sections: Sequence[int] | None = None,
        section_order: Literal["blocks", "interleaved"] = "blocks",
    ):
        super().__init__()
        head_dim = check_rotation(head_dim, base)
        length = None if length is None else whole_number("length", length, 1)
        rope_parameters = plain(rope_parameters)
        self.sections, self.section_order = sections, section_order
        self.head_dim, self.pairs = head_dim, pairs
        self.rope_parameters, self.length = rope_parameters, length
        if rope_parameters is not None:
            if (base, fraction, scaling, factor, original_length) != (10000, 1, "none", 1, None):
                raise ShapeshiftError(
                    "rope_parameters replace base, fraction, scaling, factor and original_length;"
                    " leave these out, or rope_parameters"
                )
            theta, self.attention_factor, self._limit = released(rope_parameters, head_dim, length)
            # No buffer, which `to(dtype)` and `to_empty` would change; see `T5`.
            self._theta = theta.double()
            self.width = 2 * len(theta)
            self._check_sections()
            return
        if length is not None:
            raise ShapeshiftError(
                f"length={length} has no meaning without rope_parameters; leave it out"
            )
        if not 0 < fraction <= 1:
            raise ShapeshiftError(f"fraction must lie above 0 and not above 1, got {fraction}")
        if factor != 1 if scaling == "none" else factor <= 1:
            raise ShapeshiftError(
                f"factor={factor} has no meaning with scaling={scaling!r}; give a factor above 1"
                " and scaling linear, ntk or yarn, or neither"
            )
        if (scaling == "yarn") != (original_length is not None):
            raise ShapeshiftError(
                "scaling='yarn' needs original_length, the length of texts in training, and no"
                f" other scaling takes it; got {scaling!r} and original_length={original_length}"
            )
        if original_length is not None:
            original_length = whole_number("original_length", original_length, 1)
        self.width = max(2, int(head_dim * fraction) // 2 * 2)  # r
        if scaling == "ntk" and self.width == 2:
            raise ShapeshiftError(
                "scaling='ntk' moves the slower pairs, but only one pair of channels turns;"
                " raise fraction, or use scaling linear or yarn"
            )
        self.base, self.fraction, self.scaling, self.factor = base, fraction, scaling, factor
        self.original_length = original_length
        self.attention_factor = 0.1 * math.log(factor) + 1 if scaling == "yarn" else 1.0
        self._check_sections()

    @classmethod
    def from_config(
        cls,
        config: Any,
        layer: int | str | None = None,
        *,
        length: int | None = None,
        pairs: Pairs | None = None,
    ) -> Rotary:
        """Return the rotary positions of a model that transformers has a configuration for.

            Rotary.from_config(AutoConfig.from_pretrained("meta-llama/Llama-3.1-8B"))
            Rotary.from_config(json.load(open("config.json")), layer=5)

        Reads `rope_parameters` and `rope_scaling`, with the names and the layouts of transformers 4
        and 5, and the sections of Qwen2-VL, Qwen2.5-VL and Qwen3-VL. What the configuration says of
        rotary positions and this class does not compute is an error. A number by which the model
        multiplies its scores, as DeepSeek's for YaRN, is not part of the rotary positions and is
        not included.

        Args:
            config: a configuration, or its dictionary as in `config.json`.
            layer: number of a layer from 0, or a type such as `full_attention`; needed if the
                layers differ.
            length: see `Rotary`; for `dynamic` and `longrope`.
            pairs: for a `model_type` whose pairing is not known here.

        Raises:
            ShapeshiftError: for a configuration that lacks something or has a name or a value that
                is not known; for a layer that does not exist or has no rotary positions.
        """
        return cls(**rope_config.read(config, layer, pairs), length=length)

    def max_position(self) -> int | None:
        return self._limit if self.rope_parameters is not None else None

    def frequencies(self, device: torch.device | None = None) -> Tensor:
        """Return θ `(r/2,)`, in radians per position, float64."""
        if self.rope_parameters is not None:
            theta = self._theta.to(device, exact_dtype(device))
            if theta.device.type != "meta" and not kernels.is_traced():
                self._theta = theta  # there for the next call
            return theta
        base, width = self.base, self.width
        if self.scaling == "ntk":
            base *= self.factor ** (width / (width - 2))
        theta = frequencies(width, base, device)
        if self.scaling == "linear":
            return theta / self.factor
        if self.scaling == "yarn" and self.original_length is not None:
            turns = theta * (self.original_length / (2 * math.pi))
            kept = ((turns - 1) / (32 - 1)).clamp(0, 1)  # γ
            return (1 - kept) * theta / self.factor + kept * theta
        return theta

    def _check_sections(self) -> None:
        sections, order = self.sections, self.section_order
        if sections is None:
            if order != "blocks":
                raise ShapeshiftError(
                    f"section_order={order!r} has no meaning without sections; leave it out"
                )
            return
        if not isinstance(sections, list | tuple) or len(sections) < 2:
            raise ShapeshiftError(
                "sections must be a list of the pairs of each of two or more axes, such as [16, 24,"
                f" 24], got {sections!r}"
            )
        self.num_axes = len(sections)
        sections = [whole_number("each of sections", size, 1) for size in sections]
        self.sections, num_pairs = sections, sum(sections)
        if num_pairs != self.width // 2:
            raise ShapeshiftError(
                f"sections must add up to {self.width // 2}, the pairs of channels that turn, got"
                f" {sections}, which are {num_pairs}"
            )
        if order == "interleaved" and max(sections[1:]) * len(sections) > num_pairs:
            raise ShapeshiftError(
                f"interleaved sections after the first must be at most"
                f" {num_pairs // len(sections)}, got {sections}"
            )

    def by_axis(self, theta: Tensor) -> Tensor:
        """Return θ of the pairs that each axis rotates, `(A, r/2)`, 0 for the others."""
        m, sizes = torch.arange(len(theta), device=theta.device), self.sections or ()
        later = []
        for axis, size in enumerate(sizes[1:], start=1):
            first = sum(sizes[:axis])
            own = (m >= first) & (m < first + size)
            if self.section_order == "interleaved":
                own = (m % len(sizes) == axis) & (m < len(sizes) * size)
            later.append(theta.where(own, 0))
        return torch.stack((theta - sum(later), *later))  # the first axis has the rest

    def turn(self, pos: Tensor, dtype: torch.dtype) -> Turn:
        limit, at = self.max_position(), as_positions(pos, self.num_axes)
        if limit is not None and (furthest := bounds(at)[1]) > limit:
            raise ShapeshiftError(
                f"with length={self.length}, θ is that of positions up to {limit}, got {furthest};"
                f" build it with length={furthest + 1} or more, and start with an empty cache"
            )
        theta = self.frequencies(pos.device)
        at = at.to(theta.dtype).unsqueeze(-1)  # (B|1, T, 1), with axes (B|1, T, A, 1)
        angles = at * theta if self.sections is None else (at * self.by_axis(theta)).sum(-2)
        cos, sin, scale = angles.cos(), angles.sin(), self.attention_factor  # (B|1, T, r/2)
        if self.rope_parameters is not None:  # which leave the other channels as they are
            return Turn(cos * scale, sin * scale, self.pairs == "halves")
        # Queries and keys have the same scale, so that scores are multiplied by 1 / t.
        return Turn(cos, sin, self.pairs == "halves", scale)


def frequencies(width: int, base: float, device: torch.device | None = None) -> Tensor:
    """Return θ_m = base^(-2m / width), `(width / 2,)`, in float64 if the device supports it."""
    m = torch.arange(width // 2, dtype=exact_dtype(device), device=device)
    return base ** (m * (-2 / width))


def check_rotation(head_dim: int, base: float) -> int:
    """Return E, of any integer type, as an int.

    Raises:
        ShapeshiftError: if E channels cannot rotate in pairs at these frequencies.
    """
    head_dim = whole_number("head_dim", head_dim, 1)
    if head_dim % 2:
        raise ShapeshiftError(
            f"rotary positions turn pairs of channels, got head_dim={head_dim}; choose an even"
            " head_dim (in a configuration, model.dim / model.num_heads)"
        )
    check_positive(base=base)
    return head_dim
