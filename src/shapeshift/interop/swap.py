"""Another position representation in a Hugging Face model.

Attention goes through transformers' `AttentionInterface`. The model's own positions stay where they
are and add nothing: rotary embeddings rotate by zero, a table of positions gives zeros.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NoReturn

from torch import nn

from shapeshift._system.errors import ShapeshiftError
from shapeshift._system.own_modules import is_own
from shapeshift.positions import SCHEMES, SHAPE, Representation, Scheme, get
from shapeshift.positions.base import check_sizes, tied_names

from .changed import UNDO, refuse_changed, related, use_attention
from .measure import Layer, Own, measure, silence
from .numbering import CAUSAL, NAME, Tracker, attention, keys_as_ids
from .own_rotation import SHARE

ELSEWHERE = "adds vectors to embeddings or to what is projected, where use_position cannot reach"

ENTRY = "shapeshift_position"
"""Of a model's configuration: what `use_position` has changed, for `from_pretrained`."""


def use_position(model: nn.Module, position: Representation | str, **options: Any) -> None:
    """Replace the positions of a decoder-only or encoder-only model of Hugging Face.

        use_position(model, "alibi")
        use_position(model, "rope", scaling="yarn", factor=4.0, original_length=4096)

    A model is recognised by what short forward passes show, not by its class: it takes `input_ids`,
    calls its attentions through transformers' `AttentionInterface`, and has its positions in
    modules of their own, such as a rotary embedding or a table. Training, `generate`, left padding,
    packing by `position_ids` and gradient checkpointing work as before. Without `position_ids`,
    positions are counted along a 2D `attention_mask`. `unshift` undoes it.

    Layers of a rotary model that do not rotate (SmolLM3, Llama 4) stay without positions. Weights
    of a representation (those of T5 or Shaw) are new and part of the model, as its
    `shapeshift_positions`; each layer has its own unless the kind's paper shares them.

    `save_pretrained` saves the change. `from_pretrained` opens it again, weights included, where
    `shapeshift` is imported, and refuses to where it is not; a `Representation` of your own needs
    `use_position` again, see the guide.

    Args:
        model: such as `LlamaForCausalLM`, or its base model.
        position: a scheme or kind that acts on heads or scores of self-attention, see
            `shapeshift.positions.get`; or a representation, which serves all layers.
        options: of the kind. `rope` is a rotary model's own, its scaling included, see
            `Rotary.from_config`, which may need `length`. With `base`, `fraction` or `scaling`, it
            has these, and the model's base, pairing and share of channels where they say nothing.

    Raises:
        ShapeshiftError: the model cannot be changed, for the reason that the error gives, or its
            positions are changed already; the position acts elsewhere, or was built for another
            size; an option is unknown; or `rope` with other settings in a model that scales its
            own, without `scaling`, or where `Rotary` cannot compute the model's own.
    """
    refuse_changed(model)
    _refuse_position(position, options)
    options = _plain(options) if is_named(position) else options
    own = measure(model)
    base: Any = own.base
    dim = getattr(base.config, "hidden_size", None) or base.get_input_embeddings().embedding_dim
    settings: dict[str, Mapping[str, Any] | None] = {
        layer.name: _settings(position, layer, dim, options)
        for layer in own.layers
        if layer.has_position
    }
    install(model, own, position, settings)
    setattr(base.config, ENTRY, _entry(own, position, settings))


def install(
    model: nn.Module,
    own: Own,
    position: Representation | str,
    settings: Mapping[str, Mapping[str, Any] | None],
) -> dict[str, str]:
    """Replace `own` positions of a model; return its tied weights, see `tied_names`.

    Args:
        settings: name of each attention that gets the position → its arguments for `get`; None
            where `position` is built.
    """
    base: Any = own.base
    built: dict[str, Representation] = {}
    keys: list[str] = []
    for layer in own.layers:
        first, arguments = Representation(), settings.get(layer.name)
        if isinstance(position, Representation) and layer.name in settings:
            first = position
        elif arguments is not None:
            first = get(str(position), **arguments)
        if first.num_axes > 1:
            raise ShapeshiftError(
                f"{type(first).__name__} takes positions with {first.num_axes} axes, and"
                " use_position numbers tokens along one; use a kind with one, such as 'rope'"
            )
        if first.acts("embed") or first.acts("inputs"):
            _refuse(f"{type(first).__name__} {ELSEWHERE}")
        if first.acts("state"):
            name = type(first).__name__
            _refuse(f"{name} reads the input of each layer, which attention never gets")
        if layer.narrows and first.acts("value_bias"):
            raise ShapeshiftError(
                f"{type(first).__name__} adds to values, whose width in this model is not that of"
                " its keys; use a kind that acts on scores alone, such as 'alibi' or 't5'"
            )
        is_shared = first.share_layers or not any(True for _ in first.parameters())
        keys.append(repr((type(first), arguments)) if is_shared else layer.name)
        built.setdefault(keys[-1], first)
    positions = nn.ModuleList(built.values())
    for part in positions.modules():
        part._is_hf_initialized = True  # type: ignore[assignment]  # else transformers initialises it
    weight, tied = next(base.parameters()), tied_names(positions)
    positions.to(None if weight.is_meta else weight.device, weight.dtype)
    positions._tied_weights_keys = tied  # type: ignore[assignment]  # for `save_pretrained`
    before = base.config._attn_implementation
    if before == NAME:  # opened with the position of another model, or of the user's own
        before = base.get_correct_attn_implementation(None)
    undo: dict[str, Any] = {"attention": before}
    undo["layers"] = [base.get_submodule(layer.name) for layer in own.layers]
    undo["configs"] = use_attention(model, base, undo["layers"], NAME, attention)
    base.config.attn_implementation = NAME  # without shapeshift, `from_pretrained` refuses it
    base.shapeshift_positions = positions
    undo["silenced"] = silence(own)
    undo["tracker"] = tracker = Tracker(base)
    undo["hooks"] = [
        base.register_forward_pre_hook(tracker.before, with_kwargs=True),
        base.register_forward_hook(tracker.after, with_kwargs=True),
    ]
    for layer, key, part in zip(own.layers, keys, undo["layers"], strict=True):
        # Not registered there, so that weights have one name.
        vars(part)[NAME] = positions, [*built].index(key)
        vars(part)[CAUSAL] = layer.causal
        if layer.holder is not None:
            holder = base.get_submodule(layer.holder)
            undo["hooks"].append(holder.register_forward_pre_hook(keys_as_ids, with_kwargs=True))
    setattr(base, UNDO, undo)
    track_around(model)
    return tied


def track_around(model: nn.Module) -> None:
    """Tell each model in `model` that has a changed one inside which caches are its own."""
    parts = [part for part in model.modules() if hasattr(part, "config")]
    for base in [part for part in parts if hasattr(part, UNDO)]:
        undo: dict[str, Any] = getattr(base, UNDO)
        hook = undo["tracker"].before_around
        for part in parts:
            is_around = part is not base and any(each is base for each in part.modules())
            if is_around and hook not in part._forward_pre_hooks.values():
                undo["hooks"].append(part.register_forward_pre_hook(hook, with_kwargs=True))


def is_named(position: object) -> bool:
    """Return whether a configuration may name a position: a scheme or kind of this package or of
    an installed one. It may not name a class of the user's own, for that imports a module."""
    return isinstance(position, str) and not is_own(position)


def _entry(
    own: Own, position: Representation | str, settings: Mapping[str, Mapping[str, Any] | None]
) -> dict[str, Any]:
    """Return what the configuration of a changed model says of it."""
    named = position if is_named(position) else None
    variants: list[dict[str, Any]] = []
    layers: dict[str, int] = {}
    for layer in own.layers:
        variant: dict[str, Any] = {"causal": layer.causal, "holder": layer.holder}
        variant |= {"settings": settings.get(layer.name) if named else None}
        if variant not in variants:
            variants.append(variant)
        layers[layer.name] = variants.index(variant)
    return {
        "position": named, "tables": own.tables, "rotary": own.rotary,
        "variants": variants, "layers": layers,
    }  # fmt: skip


def _plain(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return options as `config.json` holds them, arrays and tensors as numbers."""
    plain = {}
    for name, value in options.items():
        try:
            plain[name] = json.loads(json.dumps(value, default=lambda x: x.tolist()))
        except (AttributeError, TypeError, ValueError) as error:
            raise ShapeshiftError(
                f"{name} is {value!r}, which config.json cannot hold; build the position and give"
                " it to use_position in place of its name"
            ) from error
    return plain


def restore_position(model: nn.Module) -> None:
    """Undo `use_position` in all parts of a model. Other changes since then remain."""
    changed: list[Any] = [part for part in model.modules() if hasattr(part, UNDO)]
    for base in changed:
        undo = getattr(base, UNDO)
        for restore in undo["silenced"]:
            restore()
        for part in related(model, base):
            if getattr(part.config, "_attn_implementation", None) == NAME:
                part.config._attn_implementation = undo["attention"]
            for name in (ENTRY, "attn_implementation"):
                vars(part.config).pop(name, None)
        for part in undo["layers"]:
            del vars(part)[NAME], vars(part)[CAUSAL]
        for hook in undo["hooks"]:
            hook.remove()
        del base.shapeshift_positions
        delattr(base, UNDO)


def _refuse(what: str) -> NoReturn:
    raise ShapeshiftError(
        f"{what}; use one that acts on heads or scores, such as 'rope', 'alibi', 't5' or 'rpe', and"
        " shift_positions for SHAPE"
    )


def _refuse_position(position: Any, options: Mapping[str, Any]) -> None:
    """Raise a `ShapeshiftError` if `position` does not act on heads or scores of all layers."""
    if isinstance(position, Representation):
        if options:
            raise ShapeshiftError(f"{type(position).__name__} is built and takes no options")
    elif isinstance(position, SHAPE):
        _refuse(f"SHAPE {ELSEWHERE}")
    elif not isinstance(position, str):
        _refuse(f"position must be a name or a Representation, got {position!r}")
    else:
        scheme = SCHEMES.get(position, Scheme())
        if any(part.at == "embedding" for part in scheme.parts):
            _refuse(f"{position} {ELSEWHERE}")
        if any(part.layers is not None for part in scheme.parts):
            _refuse(f"{position!r} is {scheme}, and use_position gives all layers one kind")


def _settings(
    position: Representation | str, layer: Layer, dim: int, options: Mapping[str, Any]
) -> dict[str, Any] | None:
    """Return the arguments of `get` for a layer; None if `position` is built."""
    sizes = {"dim": dim, **layer.sizes}
    if isinstance(position, Representation):
        check_sizes(position, **sizes)
        return None
    for name in options.keys() & sizes.keys():
        if options[name] != sizes[name]:
            raise ShapeshiftError(
                f"{name} of {layer.name} is {sizes[name]}, got {name}={options[name]}; leave it out"
            )
    settings: dict[str, Any] = {**sizes, "causal": layer.causal}
    if position not in ("rope", "rotary") or not layer.rotates or "rope_parameters" in options:
        return {**settings, **options}
    own = layer.rotation
    if isinstance(own, str):
        if not {"base", "pairs"} <= options.keys():
            raise ShapeshiftError(
                f"Rotary does not compute the model's own rotation in {layer.name} ({own}); for"
                " another rotation, with other results than the model's own, give base and pairs"
            )
    elif not options.keys() & {"base", "fraction", "scaling"}:
        settings |= own
    else:
        parameters = own["rope_parameters"]
        if parameters["rope_type"] != "default" and "scaling" not in options:
            raise ShapeshiftError(
                f"this model scales its rope by {parameters['rope_type']!r}; name a scaling of"
                " Rotary, such as scaling='none', 'linear' or 'yarn'"
            )
        settings |= {"pairs": own["pairs"], "base": float(parameters["rope_theta"])}
        settings["fraction"] = parameters.get(SHARE, 1.0)
    return {**settings, **options}
