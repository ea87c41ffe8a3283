"""Read golden vectors with NumPy alone, recompute them from their options, and compare.

    shapeshift positions golden --output golden
    python examples/golden_vectors.py golden

Each function below is one kind, as an engine in another language would write it. The largest
deviation of each case is printed; one above 1e-12 is an error.
"""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from typing import Any

import numpy as np

Arrays = dict[str, np.ndarray]
BOUND = 1e-12


def read_safetensors(path: Path) -> Arrays:
    """Return the tensors: 8 bytes with the length of the header, the header in JSON, the data."""
    data = path.read_bytes()
    end = 8 + int.from_bytes(data[:8], "little")
    header = json.loads(data[8:end])
    header.pop("__metadata__", None)
    dtypes = {"F64": "<f8", "I64": "<i8"}
    tensors = {}
    for name, entry in header.items():
        first, last = (end + offset for offset in entry["data_offsets"])
        numbers = np.frombuffer(data[first:last], dtypes[entry["dtype"]])
        tensors[name] = numbers.reshape(entry["shape"])
    return tensors


def theta_of_papers(options: dict[str, Any]) -> tuple[np.ndarray, float, bool]:
    """Return θ, the factor of the heads, and whether it applies to channels that do not rotate."""
    width = max(2, int(options["head_dim"] * options["fraction"]) // 2 * 2)
    base, s, scaling = options["base"], options["factor"], options["scaling"]
    if scaling == "ntk":
        base = base * s ** (width / (width - 2))
    theta = base ** (-np.arange(0, width, 2) / width)
    if scaling == "linear":
        theta = theta / s
    if scaling != "yarn":
        return theta, 1.0, True
    turns = options["original_length"] * theta / (2 * math.pi)
    kept = np.clip((turns - 1) / 31, 0, 1)
    return (1 - kept) * theta / s + kept * theta, 0.1 * math.log(s) + 1, True


def theta_of_release(options: dict[str, Any]) -> tuple[np.ndarray, float, bool]:
    """As `theta_of_papers`, for `rope_parameters`."""
    given, head_dim, length = options["rope_parameters"], options["head_dim"], options["length"]
    kind, base, factor = given["rope_type"], given["rope_theta"], given.get("factor", 1.0)
    original = given.get("original_max_position_embeddings")
    share = given.get("partial_rotary_factor", 1.0)
    width = head_dim if kind == "proportional" else int(head_dim * share)
    if kind == "dynamic":
        whole = max(length, original)
        base *= (factor * whole / original - (factor - 1)) ** (width / (width - 2))
    theta, scale = base ** (-np.arange(0, width, 2) / width), 1.0
    if kind == "linear":
        theta /= factor
    elif kind == "proportional":
        theta[int(share * head_dim // 2) :] = 0
        theta /= factor
    elif kind == "llama3":
        low, high = given["low_freq_factor"], given["high_freq_factor"]
        kept = np.clip((original * theta / (2 * math.pi) - low) / (high - low), 0, 1)
        theta = (1 - kept) * theta / factor + kept * theta
    elif kind == "longrope":
        theta /= given["long_factor" if length > original else "short_factor"]
        scale = math.sqrt(1 + math.log(factor) / math.log(original))
    elif kind == "yarn":
        rotations = np.array([given.get("beta_fast", 32), given.get("beta_slow", 1)])
        low, high = width * np.log(original / (2 * math.pi * rotations)) / (2 * math.log(base))
        if given.get("truncate", True):
            low, high = math.floor(low), math.ceil(high)
        low, high = max(low, 0), min(high, width - 1)
        ramp = np.clip((np.arange(width // 2) - low) / (high - low), 0, 1)
        theta = ramp * theta / factor + (1 - ramp) * theta
        weights = given.get("mscale", 1.0), given.get("mscale_all_dim", 0.0)
        above, below = (0.1 * weight * math.log(factor) + 1 for weight in weights)
        scale = above / below
    return theta, given.get("attention_factor", scale), False


def rotary(options: dict[str, Any], given: Arrays) -> Arrays:
    is_released = options["rope_parameters"] is not None
    theta, scale, scales_all = (theta_of_release if is_released else theta_of_papers)(options)
    pos = given["positions"]  # (T), with axes (T, A)
    angles = pos[:, None] * theta if pos.ndim == 1 else pos[:, axis_of_pairs(options)] * theta
    turned = {
        f"{name}_rotated": rotate(given[name], angles, scale, options["pairs"]) for name in "qk"
    }
    if scales_all:
        for rows in turned.values():
            rows[:, 2 * len(theta) :] *= scale
    return {"theta": theta, **turned}


def axis_of_pairs(options: dict[str, Any]) -> np.ndarray:
    """Return which axis of a position rotates each pair."""
    sections = options["sections"]
    if options["section_order"] == "blocks":
        return np.repeat(np.arange(len(sections)), sections)
    m = np.arange(sum(sections))
    axis = m % len(sections)  # in turn, as long as an axis has pairs left; then the first
    return np.where(m < len(sections) * np.array(sections)[axis], axis, 0)


def axial(options: dict[str, Any], given: Arrays) -> Arrays:
    axes, width, base = options["num_axes"], options["head_dim"], options["base"]
    m = np.arange(width // 2 // axes) * axes  # a row for each axis
    offsets = np.arange(axes)[:, None] * (options["order"] == "alternating")
    theta = base ** (-2 * (m + offsets) / width)
    angles = (given["positions"][:, :, None] * theta).reshape(len(given["q"]), -1)
    return {f"{name}_rotated": rotate(given[name], angles, 1.0, options["pairs"]) for name in "qk"}


def rotate(x: np.ndarray, angles: np.ndarray, scale: Any, pairs: str) -> np.ndarray:
    """Rotate pairs of channels of `x (T, E)` by `angles (T, r/2)`, and multiply them by `scale`."""
    r, out = angles.shape[1], x.copy()
    first = np.arange(0, 2 * r, 2) if pairs == "interleaved" else np.arange(r)
    second = first + (1 if pairs == "interleaved" else r)
    cos, sin = np.cos(angles) * scale, np.sin(angles) * scale
    out[:, first] = x[:, first] * cos - x[:, second] * sin
    out[:, second] = x[:, first] * sin + x[:, second] * cos
    return out


def xpos(options: dict[str, Any], given: Arrays) -> Arrays:
    width, gamma, pos = options["head_dim"], options["gamma"], given["positions"]
    theta = options["base"] ** (-np.arange(0, width, 2) / width)
    zeta = (np.arange(0, width, 2) / width + gamma) / (1 + gamma)
    decay = zeta ** (pos[:, None] / options["scale_base"])
    scales = {"q": decay, "k": 1 / decay}
    return {
        f"{name}_rotated": rotate(given[name], pos[:, None] * theta, scale, options["pairs"])
        for name, scale in scales.items()
    }


def pope(options: dict[str, Any], given: Arrays) -> Arrays:
    width = options["head_dim"]
    theta = options["base"] ** (-np.arange(width) / width)
    delta = np.clip(given["phase"], -2 * np.pi, 0)  # of keys
    found = {}
    for name, phase in (("q", 0), ("k", delta)):
        size, angles = np.log1p(np.exp(given[name])), given["positions"][:, None] * theta + phase
        polar = np.concatenate((size * np.cos(angles), size * np.sin(angles)), axis=-1)
        # Scores are divided by sqrt(E), and those of heads of width 2E by sqrt(2E).
        found[f"{name}_rotated"] = polar * (np.sqrt(2) if name == "q" else 1)
    return found


def distances(given: Arrays) -> np.ndarray:
    """Return j - i for each query i and key j."""
    return given["positions"][None] - given["positions"][:, None]


def alibi(options: dict[str, Any], given: Arrays) -> Arrays:
    heads = options["num_heads"]
    power = 2 ** int(math.log2(heads))
    steps = np.concatenate([np.arange(1, power + 1), np.arange(heads - power) + 0.5])
    return {"bias": -(2.0 ** (-8 / power * steps))[:, None, None] * abs(distances(given))}


def kerple(options: dict[str, Any], given: Arrays) -> Arrays:
    r1, r2 = (np.exp(given[name])[:, None, None] for name in ("log_r1", "log_r2"))
    return {"bias": -r1 * np.log1p(r2 * abs(distances(given)))}


def t5(options: dict[str, Any], given: Arrays) -> Arrays:
    """A bucket for each distance below half of the buckets, then logarithmic ranges."""
    causal, num, longest = options["causal"], options["num_buckets"], options["max_distance"]
    num = num if causal else num // 2
    near = num // 2
    away = distances(given)
    far = np.minimum(-away.clip(max=0) if causal else abs(away), longest)
    # Compares d / near with (longest / near)^(m / near) in whole numbers, which are exact.
    borders = [*range(1, near)]
    for m in range(near):
        bound = longest**m * near ** (near - m)
        borders.append(next(d for d in range(longest + 1) if d**near >= bound))
    buckets = np.searchsorted(borders, far, side="right")
    if not causal:
        buckets = buckets + (away > 0) * num
    return {"bias": given["weight"].T[:, buckets]}


def fire(options: dict[str, Any], given: Arrays) -> Arrays:
    c, threshold = np.exp(given["log_c"]), np.exp(given["log_threshold"])
    i, j = given["positions"][:, None], given["positions"][None]
    x = np.sign(i - j) * np.log1p(c * abs(i - j)) / np.log1p(c * np.maximum(i, j).clip(threshold))
    hidden = np.maximum(x[..., None] * given["inner_weight"][:, 0] + given["inner_bias"], 0)
    return {"bias": np.moveaxis(hidden @ given["outer_weight"].T + given["outer_bias"], -1, 0)}


def shaw(options: dict[str, Any], given: Arrays) -> Arrays:
    k = options["max_distance"]
    rows = distances(given).clip(-k, k) + k  # (Q, K)
    found = {"query_bias": np.einsum("hqe,hqke->hqk", given["q"], heads(given["keys"], rows, 4))}
    if "values" in given:
        vectors = heads(given["values"], rows, 4)
        found["value_bias"] = np.einsum("hqk,hqke->hqe", given["probs"], vectors)
    return found


def heads(table: np.ndarray, rows: np.ndarray, num_heads: int) -> np.ndarray:
    """Return the vectors `(H, Q, K, E)` of a table `(H or 1, R, E)`."""
    return np.broadcast_to(table, (num_heads, *table.shape[1:]))[:, rows]


def sinusoidal(options: dict[str, Any], given: Arrays) -> Arrays:
    half, channels = options["dim"] // 2, options["channels"]
    steps = half - 1 if channels == "tensor2tensor" else half
    angles = given["positions"][:, None] * options["base"] ** (-np.arange(half) / steps)
    both = np.stack([np.sin(angles), np.cos(angles)], axis=2 if channels == "interleaved" else 1)
    return {"vectors": both.reshape(len(angles), 2 * half)}


KINDS = {
    "rotary": rotary, "xpos": xpos, "alibi": alibi, "kerple": kerple, "t5": t5, "fire": fire,
    "axial": axial, "pope": pope, "shaw": shaw, "skew": shaw, "sinusoidal": sinusoidal,
}  # fmt: skip


def compare(folder: Path) -> dict[str, float]:
    """Return the largest deviation of each case.

    An error of an angle grows with the position; so beyond 4096, deviations are divided by it.
    """
    tensors, largest = read_safetensors(folder / "golden.safetensors"), {}
    for case in json.loads((folder / "golden.json").read_text())["cases"]:
        name = case["name"]
        given = {key: tensors[f"{name}.{key}"] for key in case["tensors"]}
        largest[name] = 0.0
        for key, found in KINDS[case["kind"]](case["options"], given).items():
            deviation = abs(found - given[key])
            if key.endswith("_rotated") or key == "vectors":
                far = given["positions"].reshape(deviation.shape[-2], -1).max(axis=1) / 4096
                deviation /= np.maximum(1, far)[:, None]  # (T, E) or (H, T, E)
            largest[name] = max(largest[name], float(deviation.max()))
    return largest


if __name__ == "__main__":
    found = compare(Path(sys.argv[1]))
    for name, deviation in found.items():
        print(f"{name:32}{deviation:.1e}")
    if max(found.values()) > BOUND:
        sys.exit(f"deviations above {BOUND}")
