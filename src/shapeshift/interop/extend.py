"""Methods that let a model read longer texts than in training, by another rotation."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from shapeshift._system.errors import ShapeshiftError, unknown
from shapeshift.positions import Representation, Rotary
from shapeshift.positions.released import BY_LENGTH
from shapeshift.positions.rope_config import SLIDING, spelled

from .changed import UNDO
from .measure import measure, tensors_of
from .own_rotation import SHARE
from .recorder import rounding
from .shift import unshift
from .swap import use_position

METHODS = ("linear", "ntk", "dynamic", "yarn", "longrope", "llama3", "drope")

Method = str | Mapping[str, Any]
Rotations = tuple[Any, list[str], dict[str, dict[str, Any]]]
"""The part of a model that has the modules of its rotary positions, their names, and the arguments
of `Rotary` that compute them: by type of layers, "" if they do not differ, or by these names."""


@contextmanager
def extended(model: nn.Module, method: Method, trained: int, length: int) -> Iterator[Any]:
    """Context: a causal model of Hugging Face with the rotation of a method; nothing is trained.

    With s = length / trained and r channels that rotate, a method is these `rope_parameters` of
    transformers, see `Rotary`:

        linear    `factor=s`: θ / s (Chen et al. 2023)
        ntk       `rope_theta` times s^(r / (r - 2)) (Peng et al. 2023, section 3.1)
        dynamic   `factor=1`: as ntk, with s = n / trained for a sequence of n > trained tokens
                  (Peng et al. 2023, section 3.3)
        yarn      `factor=s` (Peng et al. 2023)
        longrope  `short_factor` 1 and, for sequences beyond `trained`, `long_factor` of pair m
                  s^(2m / (r - 2)), which is ntk; Ding et al. 2024 search for better ones
        llama3    `factor=s`, `low_freq_factor=1`, `high_freq_factor=4` (Llama 3.1)

    `drope` removes the positions of all layers (Gelberg et al. 2025), which the paper follows by
    further training. The model's own class computes the rotation, or `Rotary` after `use_position`.
    Where layers differ, those with sliding windows keep theirs.

    Args:
        model: with rotary positions of its own or of `use_position`.
        method: one of `METHODS`, or `rope_parameters`.
        trained: the longest sequence in training, in tokens.
        length: of the longest sequence to come.

    Yields:
        The `rope_parameters`, by type of layers or by module if these differ; None for drope.

    Raises:
        ShapeshiftError: the method is unknown; the model has no rotary positions, or scales them
            already; or its class computes other angles than the method's up to `length`.
    """
    if isinstance(method, str) and method not in METHODS:
        raise ShapeshiftError(unknown("unknown method", method, METHODS))
    base: Any = next((part for part in model.modules() if hasattr(part, UNDO)), None)
    is_own = base is None
    base, names, rotations = _own(model) if is_own else _of_use_position(base)
    if not rotations:
        raise ShapeshiftError(f"{type(model).__name__} has no rotary positions")
    if method == "drope" and is_own:
        use_position(model, "nope")
        try:
            yield None
        finally:
            unshift(model)
        return
    rotaries = {
        key: _rotary(method, rotation, trained, length)
        for key, rotation in rotations.items()
        if key != SLIDING and method != "drope"
    }
    parameters: Any = {key: rotary.rope_parameters for key, rotary in rotaries.items()}
    parameters = parameters.get("", parameters)
    config, parts = base.config, {name: base.get_submodule(name) for name in names}
    before: Any = getattr(config, "rope_parameters", None)
    device = next(base.parameters()).device
    try:
        if is_own:
            config.rope_parameters = {**parameters} if "" in rotaries else {**before, **parameters}
        for name, part in parts.items():
            new: Any = type(part)(config) if is_own else rotaries.get(name, Representation())
            base.set_submodule(name, new.to(device))
        if is_own:
            _check(base, names, rotaries, length)
        yield parameters or None
    finally:
        if is_own:
            config.rope_parameters = before
        for name, part in parts.items():
            base.set_submodule(name, part)


def _own(model: nn.Module) -> Rotations:
    own = measure(model)
    base: Any = own.base
    given = getattr(base.config, "rope_parameters", None)
    rotations = {}
    for layer in own.layers:
        if not layer.rotates:
            continue
        if isinstance(layer.rotation, str):
            raise ShapeshiftError(f"the rotation of {layer.name} is not known: {layer.rotation}")
        if not isinstance(given, Mapping):
            raise ShapeshiftError(
                f"the configuration of {type(model).__name__} has no rope_parameters; install"
                " transformers 5"
            )
        kind = ""
        if any(isinstance(each, Mapping) for each in given.values()):
            kind = base.config.layer_types[base.get_submodule(layer.name).layer_idx]
        rotations[kind] = {"head_dim": layer.sizes["head_dim"], **layer.rotation}
    return base, own.rotary, rotations


def _of_use_position(base: Any) -> Rotations:
    rotations: dict[str, dict[str, Any]] = {}
    for number, part in enumerate(base.shapeshift_positions):
        if isinstance(part, Rotary):
            own = part.rope_parameters
            if own is None:
                kind = "default" if part.scaling == "none" else part.scaling
                own = {
                    "rope_type": kind,
                    "rope_theta": part.base,
                    SHARE: part.width / part.head_dim,
                }
            rotations[f"shapeshift_positions.{number}"] = {
                "head_dim": part.head_dim, "pairs": part.pairs, "rope_parameters": own
            }  # fmt: skip
    return base, [*rotations], rotations


def _rotary(method: Method, rotation: dict[str, Any], trained: int, length: int) -> Rotary:
    """Return the rotation of a method in place of `rotation`."""
    own = rotation["rope_parameters"]
    if own["rope_type"] != "default":
        raise ShapeshiftError(
            f"this model scales its rotary positions already, by {own['rope_type']!r}; give a model"
            " whose rope_type is 'default'"
        )
    kept = {name: own[name] for name in ("rope_theta", SHARE) if name in own}
    if isinstance(method, str):
        factor, width = length / trained, Rotary(**rotation).width
        power = 1 / max(width - 2, 1)  # a single pair has θ = 1 whatever the base
        slower = [factor ** (2 * m * power) for m in range(width // 2)]
        base = kept["rope_theta"] * factor ** (width * power)
        of_method = {
            "linear": {"factor": factor},
            "ntk": {"rope_type": "default", "rope_theta": base},
            "dynamic": {"factor": 1.0},
            "yarn": {"factor": factor},
            "longrope": {
                "factor": factor, "short_factor": [1.0] * len(slower), "long_factor": slower
            },
            "llama3": {"factor": factor, "low_freq_factor": 1.0, "high_freq_factor": 4.0},
        }  # fmt: skip
        if method not in ("linear", "ntk"):
            of_method[method]["original_max_position_embeddings"] = trained
        method = {"rope_type": method, **of_method[method]}
    elif "type" in method:  # in transformers 4
        method = spelled({}, method)
    parameters = {**kept, **method}
    limit = length if parameters.get("rope_type") in BY_LENGTH else None
    return Rotary(**{**rotation, "rope_parameters": parameters}, length=limit)


def _check(base: Any, names: list[str], rotaries: dict[str, Rotary], length: int) -> None:
    """Raise a `ShapeshiftError` unless the modules return the cosines and sines of `rotaries`."""
    turned: list[tuple[Tensor, ...]] = []
    parts = [base.get_submodule(name) for name in names]
    device = next(base.parameters()).device
    ids = torch.ones(1, length, dtype=torch.int64, device=device)
    with ExitStack() as hooks, torch.no_grad():
        for part in parts:
            hook = part.register_forward_hook(lambda _, args, out: turned.append(tensors_of(out)))
            hooks.enter_context(hook)
        base(input_ids=ids, use_cache=False)
    pos = torch.arange(length, device=device)[None]
    for rotary in rotaries.values():
        turn = rotary.turn(pos, torch.float64)
        if not any(_turns(tensors, turn.cos[0], turn.sin[0]) for tensors in turned):
            raise ShapeshiftError(
                f"{type(parts[0]).__name__} computes other cosines or sines than its"
                f" rope_parameters say: {rotary.rope_parameters}"
            )


def _turns(tensors: tuple[Tensor, ...], cos: Tensor, sin: Tensor) -> bool:
    """Return whether a module returned these cosines and sines `(T, r/2)`, each once or twice."""
    if len(tensors) == 1:
        tensors = tensors[0].real, tensors[0].imag
    length, num = cos.shape
    # float32 has 24 bits, also for angles.
    allowed = rounding(tensors[0]) + length * 2.0**-22
    numbers = [x.reshape(-1, length, x.shape[-1])[0].to(cos.dtype) for x in tensors]
    return any(
        all(
            x[:, at].shape == wanted.shape and bool(((x[:, at] - wanted).abs() <= allowed).all())
            for x, wanted in zip(numbers, (cos, sin), strict=True)
        )
        for at in (slice(0, num), slice(0, 2 * num, 2))
    )
