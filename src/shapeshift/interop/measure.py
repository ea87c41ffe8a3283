"""How a Hugging Face model uses positions, as a few short forward passes show it.

In these passes no attention mixes tokens: each returns its values. Then

- a module holds positions if what it returns differs from place to place, but does not change with
  the tokens: a pair (cos, sin) or a complex tensor rotates, one real tensor is added;
- an attention belongs to the model if it is called through transformers' `AttentionInterface`;
- once these modules are silent, the heads and the output of a token depend on this token alone. If
  they do not, positions act, or tokens mix, where `use_position` cannot reach.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from shapeshift._system.errors import ShapeshiftError

from .changed import no_vectors
from .families import has_axes, special_ids, text_config
from .numbering import KEYS
from .own_rotation import own_rotation
from .recorder import LENGTH, Call, Run, no_interface, places, recording, rows_of, same

LONG = 300
"""Tokens, if the model takes so many, with which the silenced model is tried: some attentions
compress blocks of tokens."""

FAR = 1000
"""Distance of neighbours there: some models change their scores far beyond their training."""

PASSED_ON = {"position_ids", "cache_position", "use_cache", "is_causal", "sliding_window"}
COMPUTED = {"scaling", "dropout", "softcap", "s_aux", KEYS}
"""What attentions may be called with: arguments without an effect on the scores, and those that
`numbering.attention` computes."""


@dataclass
class Own:
    """A model's own positions.

    Attributes:
        base: the innermost model that has all attentions.
        tables: names, in `base`, of modules whose vectors are added.
        rotary: names of modules that return cosines and sines.
        layers: the attentions.
    """

    base: nn.Module
    tables: list[str]
    rotary: list[str]
    layers: list[Layer] = field(default_factory=list)


@dataclass
class Layer:
    """An attention of a model.

    Attributes:
        name: in the base model.
        sizes: `num_heads` and `head_dim`.
        causal: whether it is called with a causal mask.
        holder: the name of the innermost module around it that gets further arguments, if none
            but `position_ids` arrive, see `numbering.keys_as_ids`.
        narrows: whether its values have another width than its keys (multi-head latent attention).
        has_position: whether the model's own positions act there, or nowhere.
        rotates: whether its queries and keys rotate.
        rotation: `pairs` and `rope_parameters` of the `Rotary` that computes this, or the reason
            why none does.
    """

    name: str
    sizes: dict[str, int]
    causal: bool
    holder: str | None = None
    narrows: bool = False
    has_position: bool = True
    rotates: bool = False
    rotation: dict[str, Any] | str = ""


def measure(model: nn.Module) -> Own:
    """Return a model's own positions; the model is unchanged afterwards.

    Raises:
        ShapeshiftError: if the model is no model of tokens of Hugging Face, or has positions or
            attentions that `use_position` cannot replace.
    """
    top = _outermost(model)
    ids = _tokens(top)
    rows = ids[rows_of(LENGTH)]  # (2, T)
    padding = torch.ones_like(rows)
    padding[:, 1] = 0
    with recording(top) as run:
        first, other = (run(top, x, keep=True) for x in (rows, ids[rows_of(LENGTH) + 1]))
        if not first.calls:
            raise no_interface(top)
        base = _innermost(top, {call.module for call in first.calls})
        own = Own(base, *_position_modules(base, first.outputs, other.outputs))
        kept, step = _state(own), FAR if _turns_far(own) else 1
        undo: list[Callable[[], object]] = []
        hook = base.register_forward_pre_hook(_with_keys, with_kwargs=True)
        try:
            turned = first
            if step > 1:
                far = step * torch.arange(LENGTH, device=ids.device).expand_as(rows)
                turned = run(base, rows, position_ids=far)
            undo = silence(own)
            silent, changed = (run(top, x) for x in (rows, ids[rows_of(LENGTH) + 1]))
            _check(top, silent, own)
            _check_tokens(top, silent, changed, own)
            limit = getattr(text_config(top.config), "max_position_embeddings", LONG)
            # A model with a table may read other buffers at its position_ids, which begin anywhere.
            long = ids[rows_of(min(LONG, limit // 2 if own.tables else limit))]
            far = FAR * torch.arange(long.shape[1], device=ids.device).expand_as(long)
            _check(top, run(base, long, **({} if own.tables else {"position_ids": far})), own)
            padded = run(top, rows, attention_mask=padding)
        finally:
            hook.remove()
            for restore in undo:
                restore()
            for part, attributes in kept:
                vars(part).clear()
                vars(part).update(attributes)
    own.layers = _layers(own, first, silent, padded, turned, step)
    return own


def _turns_far(own: Own) -> bool:
    """Return whether the rotation at far positions can be compared: of any position, with angles
    that a model in half precision has not rounded."""
    parts = [own.base.get_submodule(name) for name in own.rotary]
    floats = [x.dtype for part in parts for x in part.buffers() if x.is_floating_point()]
    takes_ids = "position_ids" in inspect.signature(own.base.forward).parameters
    is_exact = all(dtype in (torch.float32, torch.float64) for dtype in floats)
    return bool(parts) and not own.tables and takes_ids and is_exact


def _state(own: Own) -> list[tuple[nn.Module, dict[str, Any]]]:
    """Return the attributes of rotary modules, which some change when they see long sequences."""
    parts = [part for name in own.rotary for part in own.base.get_submodule(name).modules()]
    return [(part, {**vars(part), "_buffers": {**part._buffers}}) for part in parts]


def silence(own: Own) -> list[Callable[[], object]]:
    """Let the modules that hold positions add nothing and rotate by zero; return the calls that
    undo it."""
    undo: list[Callable[[], object]] = []
    for name in own.tables:
        table = own.base.get_submodule(name)
        is_trained = any(weight.requires_grad for weight in table.parameters())
        undo.append(partial(_restore, table, vars(table).get("forward"), is_trained))
        table.requires_grad_(False).forward = no_vectors
    for name in own.rotary:
        hook = own.base.get_submodule(name).register_forward_hook(rotate_by_zero)
        undo.append(hook.remove)
    return undo


def _restore(table: nn.Module, forward: Any, is_trained: bool) -> None:
    del table.forward
    if forward is not None:  # of accelerate
        table.forward = forward
    table.requires_grad_(is_trained)


def rotate_by_zero(module: nn.Module, args: Any, output: Any) -> Any:
    """Forward hook of rotary embeddings: returns the cosine and sine of zero."""
    if isinstance(output, Tensor):  # complex
        return torch.ones_like(output)
    cos, sin = output
    return torch.ones_like(cos), torch.zeros_like(sin)


def _outermost(model: nn.Module) -> Any:
    """Return the outermost model of Hugging Face that reads tokens."""
    try:
        from transformers import PreTrainedModel
    except ImportError:
        PreTrainedModel = ()  # type: ignore[misc,assignment]
    top: Any = next((part for part in model.modules() if isinstance(part, PreTrainedModel)), None)
    if top is None:
        raise ShapeshiftError(
            f"use_position is for models of Hugging Face, not {type(model).__name__}; for layers of"
            " torch.nn see shapeshift.interop.torch_nn"
        )
    config = top.config
    if config.is_encoder_decoder or getattr(config, "add_cross_attention", False):
        raise ShapeshiftError(
            f"use_position is for decoder-only and encoder-only models, and {type(top).__name__}"
            " has attention to an encoder"
        )
    if "input_ids" not in inspect.signature(top.forward).parameters:
        raise ShapeshiftError(
            f"use_position needs a model that reads input_ids, and {type(top).__name__} does not"
        )
    if has_axes(top):
        raise ShapeshiftError(
            f"{type(top).__name__} gives each token several positions, such as time, row and column"
            " (M-RoPE), and use_position numbers tokens along one axis"
        )
    return top


def _tokens(top: Any) -> Tensor:
    """Return eight ids of tokens that are not special."""
    config = text_config(top.config)
    device = next(top.get_input_embeddings().parameters()).device
    if device.type == "meta":
        raise ShapeshiftError(
            "the weights of this model are on the device meta, where they have no numbers; load"
            " them before use_position"
        )
    usable = sorted({*range(config.vocab_size)} - special_ids(config))
    usable = usable[4:12] or usable
    return torch.tensor((usable * 8)[:8], device=device)


def _innermost(top: nn.Module, attentions: set[nn.Module]) -> nn.Module:
    """Return the innermost model of Hugging Face that has all of these modules."""
    kind = next(base for base in type(top).__mro__ if base.__name__ == "PreTrainedModel")
    models = [part for part in top.modules() if isinstance(part, kind)]
    return [part for part in models if attentions <= {*part.modules()}][-1]


def _position_modules(
    base: nn.Module, first: dict[nn.Module, Any], other: dict[nn.Module, Any]
) -> tuple[list[str], list[str]]:
    """Return the names of modules that hold positions: those that are added, those that rotate."""
    tables: list[str] = []
    rotary: list[str] = []
    for name, part in base.named_modules():
        if part is base or any(name.startswith(f"{each}.") for each in (*tables, *rotary)):
            continue
        calls, others = (
            [tensors_of(output) for output in outputs.get(part, [])] for outputs in (first, other)
        )
        if not calls or not all(calls):
            continue
        flat, changed = [x for call in calls for x in call], [x for call in others for x in call]
        if len(flat) != len(changed) or not all(map(torch.equal, flat, changed)):
            continue
        if not any(map(_varies, flat)):
            continue
        if all(is_rotation(tensors) for tensors in calls):
            rotary.append(name)
        elif all(len(tensors) == 1 and _is_added(tensors[0]) for tensors in calls):
            tables.append(name)
    return tables, rotary


def tensors_of(output: object) -> tuple[Tensor, ...]:
    """Return the tensors that a module returned; none if it returned anything else, too."""
    found = output if isinstance(output, tuple | list) else (output,)
    return tuple(found) if all(isinstance(x, Tensor) for x in found) else ()


def _varies(x: Tensor) -> bool:
    """Return whether a tensor differs between places."""
    dims = [dim for dim, size in enumerate(x.shape) if size == LENGTH]
    return any(not torch.equal(x.select(dim, 1), x.select(dim, 2)) for dim in dims)


def _is_added(x: Tensor) -> bool:
    """Return whether a tensor has a vector for each token."""
    return x.is_floating_point() and x.ndim > 1 and x.shape[-2] == LENGTH != x.shape[-1]


def is_rotation(tensors: Sequence[Tensor]) -> bool:
    """Return whether these are the cosine and sine of angles, times a factor, or complex."""
    if len(tensors) == 1:
        return tensors[0].is_complex()
    if len(tensors) != 2 or tensors[0].shape != tensors[1].shape:
        return False
    squares = tensors[0].float() ** 2 + tensors[1].float() ** 2
    return bool(((squares - squares.mean()).abs() < 0.02 * squares.mean()).all())


def _with_keys(module: nn.Module, args: Any, kwargs: Any) -> Any:
    """Forward pre-hook of the base model: an argument that has to arrive at its attentions."""
    parameters = inspect.signature(module.forward).parameters.values()
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        kwargs = {**kwargs, KEYS: torch.zeros(1, LENGTH)}
    return args, kwargs


def _check(top: nn.Module, silent: Run, own: Own) -> None:
    """Raise a `ShapeshiftError` if positions still act, tokens still mix, or an attention cannot be
    computed by `numbering.attention`."""
    names, model = {part: name for name, part in own.base.named_modules()}, type(top).__name__
    for call in silent.calls:
        if call.num_keys != silent.length:
            name = names.get(call.module, "an attention")
            raise ShapeshiftError(f"{name} of {model} attends to other keys than its tokens")
    seen = [
        (names.get(call.module, "an attention"), x.transpose(1, 2))
        for call in silent.calls
        for x in (call.query, call.key)
    ]
    seen += [] if silent.result is None else [("its output", silent.result)]
    for name, x in seen:  # (2, S, …), of one token
        if not same(x[0], x[1], 0.1):  # a recurrence of random weights mixes little
            raise ShapeshiftError(
                f"{model} mixes tokens outside of transformers' AttentionInterface (a recurrence, a"
                f" convolution or another attention), as {name} shows; use_position cannot replace"
                " the order of tokens there"
            )
        if not same(x[:, 1:], x[:, :1].expand_as(x[:, 1:])):
            raise ShapeshiftError(
                f"{model} uses positions where use_position cannot remove them, as {name} shows:"
                " they are no module of their own"
            )
    for call in silent.calls:
        name = names[call.module]
        if _biases_by_place(call.mask, silent.length):
            raise ShapeshiftError(
                f"the mask of {name} of {model} adds numbers to scores that depend on positions,"
                " which use_position cannot remove"
            )
        holder = _holder(own.base, name, silent.reached)
        if call.arguments[KEYS] is None and (not holder or call.arguments["position_ids"] is None):
            raise ShapeshiftError(
                f"{model} passes no further arguments on to {name}, by which use_position would"
                " give it positions"
            )
        more = {
            x for x, value in call.arguments.items() if value is not None and value is not False
        }
        if unknown := more - PASSED_ON - COMPUTED:
            raise ShapeshiftError(
                f"{name} of {model} attends with {', '.join(sorted(unknown))}, which the"
                " attention of use_position does not compute"
            )


def _check_tokens(top: nn.Module, silent: Run, changed: Run, own: Own) -> None:
    """Raise a `ShapeshiftError` if an attention has the same queries for other tokens."""
    names = {part: name for name, part in own.base.named_modules()}
    for before, now in zip(silent.calls, changed.calls, strict=True):
        if torch.equal(before.query, now.query):
            raise ShapeshiftError(
                f"the queries of {names[now.module]} of {type(top).__name__} do not depend on"
                " tokens without its own positions, so use_position cannot replace these"
            )


def _biases_by_place(mask: object, length: int) -> bool:
    """Return whether a mask adds other numbers to keys of one token, for the last query."""
    if not isinstance(mask, Tensor) or not mask.is_floating_point():
        return False
    added = mask[..., -1, places(length)]
    allowed = added > -1e4
    highest = added.amax(-1, keepdim=True).expand_as(added)
    return not same(added[allowed], highest[allowed])


def _holder(base: nn.Module, name: str, reached: set[nn.Module]) -> str | None:
    """Return the name of the innermost module around `name`, or itself, that is in `reached`."""
    steps = name.split(".")
    around = [".".join(steps[:n]) for n in range(len(steps), 0, -1)]
    return next((each for each in around if base.get_submodule(each) in reached), None)


def _layers(own: Own, first: Run, silent: Run, padded: Run, turned: Run, step: int) -> list[Layer]:
    """Return the attentions of a model; in `turned` it rotates as in `first`, by `step` times the
    positions."""
    names = {part: name for name, part in own.base.named_modules()}
    rotations = [
        tensors_of(output)
        for name in own.rotary
        for output in first.outputs[own.base.get_submodule(name)]
    ]
    layers: dict[nn.Module, Layer] = {}
    runs = first.calls, silent.calls, padded.calls, turned.calls
    for before, now, masked, far in zip(*runs, strict=True):
        if now.module in layers:  # one for several layers
            continue
        sizes = {"num_heads": now.query.shape[1], "head_dim": now.query.shape[3]}
        causal = _is_causal(masked, names[now.module])
        layer = layers[now.module] = Layer(names[now.module], sizes, causal)
        layer.narrows = now.value.shape[3] != sizes["head_dim"]
        if now.arguments[KEYS] is None:
            layer.holder = _holder(own.base, layer.name, silent.reached)
        if not own.tables and own.rotary:
            layer.has_position = not same(before.query, now.query)
        layer.rotates = bool(own.rotary) and layer.has_position
        if layer.rotates:
            layer.rotation = own_rotation(own.base.config, far, now, step, rotations)
    if not any(layer.has_position for layer in layers.values()):
        for layer in layers.values():  # no positions at all
            layer.has_position = True
    return [*layers.values()]


def _is_causal(call: Call, name: str) -> bool:
    """Return whether an attention is causal; `call` has padding, so a mask is a tensor, if any."""
    mask = call.mask
    if isinstance(mask, Tensor):
        allowed = mask if mask.dtype is torch.bool else mask > -1e4
        return not allowed[..., 0, 2:].any()
    is_causal = call.arguments.get("is_causal")
    is_causal = getattr(call.module, "is_causal", None) if is_causal is None else is_causal
    if is_causal is None:
        raise ShapeshiftError(
            f"{name} gets no mask and has no is_causal, so use_position cannot know whether tokens"
            " see later ones; set is_causal of this module to True or False"
        )
    return bool(is_causal)
