"""θ and attention factors of rotary positions, exactly as released language models compute them.

The formulas are those of Hugging Face transformers 5 (`modeling_rope_utils`), in the order in which
it computes them, so that θ is equal to the last bit of float32.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor

from shapeshift._system.errors import ShapeshiftError, nearest

from .checks import is_whole_number

REQUIRED: dict[str, str] = {
    "default": "",
    "linear": "factor",
    "dynamic": "factor original_max_position_embeddings",
    "yarn": "factor original_max_position_embeddings",
    "longrope": "short_factor long_factor original_max_position_embeddings",
    "llama3": "factor low_freq_factor high_freq_factor original_max_position_embeddings",
    "proportional": "",
}
"""`rope_type` → the parameters that it needs besides `rope_type` and `rope_theta`."""

OPTIONAL = {
    "yarn": "attention_factor mscale mscale_all_dim beta_fast beta_slow truncate",
    "longrope": "attention_factor factor",
    "proportional": "factor",
}
"""`rope_type` → the parameters that it may have besides `partial_rotary_factor`."""

BY_LENGTH = "dynamic", "longrope"
"""The types whose θ depends on the length of the whole sequence."""

LISTS = "short_factor", "long_factor"


class Released(NamedTuple):
    """What `rope_parameters` say."""

    theta: Tensor
    """`(r/2,)`, on the CPU, in the dtype in which it was computed."""
    attention_factor: float
    """cos and sin are multiplied by it."""
    max_position: int | None
    """The highest position with this θ; None if there is no limit."""


def released(
    parameters: Mapping[str, Any],
    head_dim: int,
    length: int | None = None,
    dtype: torch.dtype = torch.float32,
) -> Released:
    """Return θ and the attention factor of `rope_parameters`, which `Rotary` describes.

    Args:
        parameters: with the names of transformers 5.
        head_dim: E.
        length: tokens of a whole sequence, those to come included; for `dynamic` and `longrope`.
        dtype: in which θ is computed; released models compute it in float32.

    Raises:
        ShapeshiftError: for an unknown, missing or wrong parameter; for a length that is missing or
            has no effect.
    """
    check_parameters(parameters)
    kind, base = parameters["rope_type"], parameters["rope_theta"]
    share, factor = parameters.get("partial_rotary_factor", 1.0), parameters.get("factor", 1.0)
    original: Any = parameters.get("original_max_position_embeddings")
    width = int(head_dim * share)
    if kind == "proportional":
        width = head_dim
    if width < 2 or width % 2:
        raise ShapeshiftError(
            f"partial_rotary_factor={share} of head_dim={head_dim} rotates {width} channels, which"
            " do not form pairs; give one that leaves an even number, 2 or more"
        )
    if kind == "dynamic" and width == 2:
        raise ShapeshiftError(
            "rope_type 'dynamic' moves the slower pairs, but only one pair of channels rotates;"
            " use a larger head_dim or partial_rotary_factor"
        )
    if (kind in BY_LENGTH) != (length is not None):
        raise ShapeshiftError(
            f"θ of rope_type {kind!r} depends on the length of the whole sequence; give length, the"
            " most tokens that it will have with what is generated"
            if length is None
            else f"length={length} has no effect on rope_type {kind!r}; leave it out"
        )

    def periods(base: float, width: int, num_rotated: int | None = None) -> Tensor:
        stop = width if num_rotated is None else num_rotated
        m = torch.arange(0, stop, 2, dtype=dtype, device="cpu")
        return torch.pow(base, m / width)  # 1 / θ without scaling

    scale, limit = 1.0, None
    if kind == "dynamic":
        whole = max(length or 0, original)
        limit = whole - 1
        stretch = (factor * whole / original) - (factor - 1)
        theta = 1.0 / periods(base * stretch ** (width / (width - 2)), width)
    elif kind == "yarn":
        theta = _yarn(parameters, periods(base, width), width)
        scale = _yarn_scale(parameters)
    elif kind == "longrope":
        is_long = length is not None and length > original
        limit = None if is_long else original - 1
        for name in LISTS:
            if (size := len(parameters[name])) != width // 2:
                raise ShapeshiftError(
                    f"{name} has {size} numbers, and {width // 2} pairs of channels rotate; give"
                    " one for each"
                )
        factors = torch.tensor(parameters[LISTS[is_long]], dtype=dtype, device="cpu")
        theta = 1.0 / (factors * periods(base, width))
        if "attention_factor" in parameters:
            scale = parameters["attention_factor"]
        elif factor > 1:
            scale = math.sqrt(1 + math.log(factor) / math.log(original))
    elif kind == "llama3":
        theta = _llama3(parameters, 1.0 / periods(base, width))
    elif kind == "proportional":
        num_rotated = 2 * int(share * head_dim // 2)
        theta = torch.zeros(head_dim // 2, dtype=dtype, device="cpu")
        theta[: num_rotated // 2] = 1.0 / periods(base, head_dim, num_rotated)
        theta = theta / factor
    else:
        theta = 1.0 / periods(base, width) / factor
    return Released(theta, float(scale), limit)


def _yarn(parameters: Mapping[str, Any], periods: Tensor, width: int) -> Tensor:
    """Return θ between that of interpolation and the original one, on a ramp over the number of a
    pair; its ends are the pairs that rotate `beta_fast` and `beta_slow` times in the old length."""
    factor: float = parameters["factor"]
    base, original = parameters["rope_theta"], parameters["original_max_position_embeddings"]

    def pair(rotations: float) -> float:
        return (width * math.log(original / (rotations * 2 * math.pi))) / (2 * math.log(base))

    low, high = pair(parameters.get("beta_fast", 32)), pair(parameters.get("beta_slow", 1))
    if parameters.get("truncate", True):
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, width - 1)
    if low == high:
        high += 0.001
    m = torch.arange(width // 2, dtype=periods.dtype, device="cpu")
    kept = 1 - ((m - low) / (high - low)).clamp(0, 1)
    slow, fast = 1.0 / (factor * periods), 1.0 / periods
    return slow * (1 - kept) + fast * kept


def _yarn_scale(parameters: Mapping[str, Any]) -> float:
    """Return the attention factor, 0.1 ln(factor) + 1 unless the parameters say otherwise."""

    def scale(weight: float) -> float:
        factor = parameters["factor"]
        return 1.0 if factor <= 1 else 0.1 * weight * math.log(factor) + 1.0

    if "attention_factor" in parameters:
        return float(parameters["attention_factor"])
    if "mscale" in parameters:
        return scale(parameters["mscale"]) / scale(parameters["mscale_all_dim"])
    return scale(1)


def _llama3(parameters: Mapping[str, Any], theta: Tensor) -> Tensor:
    """Return θ / factor for the pairs that rotate fewer than `low_freq_factor` times in the old
    length, θ from `high_freq_factor` times on, and a mixture in between."""
    factor, original = parameters["factor"], parameters["original_max_position_embeddings"]
    low, high = parameters["low_freq_factor"], parameters["high_freq_factor"]
    wavelengths = 2 * math.pi / theta
    kept = (original / wavelengths - low) / (high - low)
    mixed = (1 - kept) * theta / factor + kept * theta
    scaled = torch.where(wavelengths > original / low, theta / factor, mixed)
    return torch.where(wavelengths < original / high, theta, scaled)


def plain(value: Any) -> Any:
    """Return a copy of parameters, or a value of theirs, as lists and numbers of Python; numbers
    and arrays of NumPy become these."""
    if isinstance(value, Mapping):
        return {name: plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    return value.tolist() if hasattr(value, "tolist") else value


def check_parameters(parameters: Mapping[str, Any]) -> None:
    """Raise a `ShapeshiftError` for a type, a name or a value of `rope_parameters` that is unknown,
    missing or out of range."""
    if "rope_type" not in parameters:
        old = ", which transformers 4 called type" if "type" in parameters else ""
        raise ShapeshiftError(
            f"rope_parameters need a rope_type{old} (known: {', '.join(REQUIRED)})"
        )
    kind = parameters["rope_type"]
    if not isinstance(kind, str) or kind not in REQUIRED:
        raise ShapeshiftError(
            f"rope_parameters: unknown rope_type {kind!r}{nearest(str(kind), REQUIRED)} (known:"
            f" {', '.join(REQUIRED)})"
        )
    required = ["rope_theta", *REQUIRED[kind].split()]
    known = ["rope_type", *required, "partial_rotary_factor", *OPTIONAL.get(kind, "").split()]
    for name in parameters:
        if name not in known:
            raise ShapeshiftError(
                f"rope_parameters: rope_type {kind!r} has no {name!r}{nearest(str(name), known)}"
                f" (it has {', '.join(known)}); remove it if the model does not use it"
            )
    for name in required:
        if name not in parameters:
            raise ShapeshiftError(f"rope_parameters: rope_type {kind!r} needs {name}")
    for name, value in parameters.items():
        if name != "rope_type" and (problem := _problem(name, value)):
            raise ShapeshiftError(f"rope_parameters: {name} must be {problem}, got {value!r}")
    if ("mscale" in parameters) != ("mscale_all_dim" in parameters):
        raise ShapeshiftError(
            "rope_parameters: implementations differ in what mscale means without mscale_all_dim,"
            " or the reverse; give both or attention_factor"
        )
    if parameters.get("beta_fast", 32) < parameters.get("beta_slow", 1):
        raise ShapeshiftError("rope_parameters: beta_slow is above beta_fast (by default 1 and 32)")
    if kind == "llama3" and parameters["low_freq_factor"] > parameters["high_freq_factor"]:
        raise ShapeshiftError("rope_parameters: low_freq_factor is above high_freq_factor")


def _problem(name: str, value: Any) -> str | None:
    """Return what a parameter must be, if its value is something else."""

    def is_positive(x: Any) -> bool:  # and within the range of float32
        return isinstance(x, int | float) and not isinstance(x, bool) and 0 < x < 1e38

    if name == "truncate":
        return None if isinstance(value, bool) else "true or false"
    if name in LISTS:
        is_list = isinstance(value, list | tuple) and all(map(is_positive, value))
        return None if is_list else "a list of positive numbers"
    if name == "original_max_position_embeddings":
        fits = is_whole_number(value) and value > 1
        return None if fits else "a whole number above 1"
    if name == "partial_rotary_factor":
        return None if is_positive(value) and value <= 1 else "above 0 and not above 1"
    if name == "rope_theta":
        return None if is_positive(value) and value > 1 else "a number above 1 and below 1e38"
    return None if is_positive(value) else "a positive number"
