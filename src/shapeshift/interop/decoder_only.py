"""Another position representation in a decoder-only model of Hugging Face.

Attention goes through transformers' `AttentionInterface`. The model's own positions stay where they
are and add nothing: rotary embeddings rotate by zero, a table of positions gives zeros.
"""

from __future__ import annotations

import inspect
import weakref
from functools import cache
from itertools import count
from typing import Any, NoReturn

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from shapeshift._system.errors import ShapeshiftError
from shapeshift.attention import attend
from shapeshift.positions import SCHEMES, SHAPE, Representation, Scheme, get, rope_config
from shapeshift.positions.base import check_sizes, tied_names

from .changed import (
    UNDO,
    cache_of,
    no_vectors,
    refuse_changed,
    require_attention,
    use_attention,
)

NAME = "shapeshift"
"""Of our attention among those of transformers."""

KEYS = "shapeshift_keys"
"""Argument by which a call hands the positions of its keys, `(B|1, K)`, to its attentions."""

ELSEWHERE = "adds vectors to embeddings or to what is projected, where use_position cannot reach"

OWN_POSITIONS = {
    **dict.fromkeys(
        ("LlamaModel", "Qwen2Model", "Qwen3Model", "MistralModel", "GPTNeoXModel"), "rotary_emb"
    ),
    "GPT2Model": "wpe",
    "OPTDecoder": "embed_positions",
}
"""Class of the base model → its attribute that knows positions."""


def use_position(model: nn.Module, position: Representation | str, **options: Any) -> None:
    """Replace the positions of a decoder-only model of Hugging Face.

        use_position(model, "alibi")
        use_position(model, "rope", scaling="yarn", factor=4.0, original_length=4096)

    Known: Llama, Qwen2, Qwen3, Mistral, GPT-NeoX, GPT-2 and OPT. Training, `generate`, left
    padding, packing by `position_ids` and gradient checkpointing work as before. Without
    `position_ids`, positions are counted along a 2D `attention_mask`. `unshift` undoes it.

    Weights of a representation (those of T5 or Shaw) are new and part of the model, as its
    `shapeshift_positions`; each layer has its own unless the kind's paper shares them.

    A model that `from_pretrained` opens has its own positions until `use_position` is called, and
    then new weights of the representation, to be loaded by `load_state_dict`.

    Args:
        model: such as `LlamaForCausalLM`, or its base model.
        position: a scheme or kind that acts on heads or scores of self-attention, see
            `shapeshift.positions.get`; or a representation, which serves all layers.
        options: of the kind. `rope` is a rotary model's own, its scaling included, see
            `Rotary.from_config`, which may need `length`. With `base`, `fraction` or `scaling`, it
            has these, and the model's base, pairing and share of channels where they say nothing.

    Raises:
        ShapeshiftError: the model is of another family, attends to an encoder, or its positions are
            changed already; the position acts elsewhere, or was built for another size; an option
            is unknown; or `rope` in a model that scales its own, without `scaling`.
    """
    base = _base(model)
    config: Any = base.config
    refuse_changed(model)
    if getattr(config, "add_cross_attention", False):
        raise ShapeshiftError("use_position is for decoder-only models, this one has an encoder")
    attentions = [part for part in base.modules() if hasattr(part, "layer_idx")]
    name = OWN_POSITIONS[type(base).__name__]
    own = getattr(base, name)
    rotary = own if name == "rotary_emb" else None
    placed = _build(position, config, rotary, len(attentions), options)
    weight = next(base.parameters())
    base.shapeshift_positions = placed.to(weight.device, weight.dtype)
    placed._tied_weights_keys = tied_names(placed)  # type: ignore[assignment]  # for `save_pretrained`
    attention = config._attn_implementation
    use_attention(model, config, NAME, _attention)
    is_trained = any(table.requires_grad for table in own.parameters())
    undo = own, vars(own).get("forward"), is_trained, attention, attentions
    own.requires_grad_(False).forward = no_vectors if rotary is None else _no_rotation
    tracker = _Tracker()
    for part in attentions:  # not registered there, so that weights have one name
        vars(part)[NAME] = placed
    before = base.register_forward_pre_hook(tracker.before, with_kwargs=True)
    after = base.register_forward_hook(tracker.after, with_kwargs=True)
    setattr(base, UNDO, (*undo, (before, after)))


def restore_position(model: nn.Module) -> None:
    """Undo `use_position`. Other changes since then remain."""
    base = _base(model)
    own, forward, is_trained, attention, attentions, hooks = getattr(base, UNDO)
    del own.forward
    if forward is not None:  # of accelerate
        own.forward = forward
    own.requires_grad_(is_trained)
    config: Any = base.config
    config._attn_implementation = attention
    for part in attentions:
        del vars(part)[NAME]
    for hook in hooks:
        hook.remove()
    del base.shapeshift_positions
    delattr(base, UNDO)


def _no_rotation(x: Tensor, position_ids: Tensor) -> tuple[Tensor, Tensor]:
    """A `forward` for rotary embeddings that returns the cosine and sine of zero."""
    one = x.new_ones(1, 1, 1)  # broadcast to (B, T, E)
    return one, torch.zeros_like(one)


class _Tracker:
    """Numbers the tokens of a decoder-only model.

    Key positions belong to one call. The call passes them to its attentions as an argument, and
    keeps them as an additional layer of its cache, so that they move with its rows. The model
    stores none, so several threads may call it.
    """

    numbers = count(1)

    def __init__(self) -> None:
        self.number = next(self.numbers)

    def before(
        self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Forward pre-hook of the base model: adds `position_ids` and `KEYS` to its arguments."""
        require_attention(module, NAME, _attention, "undo use_position by unshift(model)")
        given = inspect.signature(module.forward).bind_partial(*args, **kwargs).arguments
        given |= given.pop("kwargs", {})
        tokens = given.get("input_ids")
        tokens = given["inputs_embeds"] if tokens is None else tokens
        cache, mask = cache_of(given), given.get("attention_mask")
        start = 0 if cache is None else int(cache.get_seq_length())
        end = start + tokens.shape[1]
        pos = given.get("position_ids")
        if pos is None and mask is not None and mask.ndim == 2:
            pos = (mask.long().cumsum(-1) - 1).clamp(min=0)[:, start:end]
        if pos is None:
            pos = torch.arange(start, end, device=tokens.device).unsqueeze(0)
        given["position_ids"] = given[KEYS] = pos  # (B|1, T)
        if start:
            layer = _layer_of(cache)
            if layer is None or layer.number != self.number or layer.get_seq_length() != start:
                raise ShapeshiftError(
                    "this cache was filled with other positions, before use_position was called;"
                    " start with an empty one"
                )
            layer.in_use = True
            earlier = layer.keys[:, 0, :, 0]  # (B, start)
            given[KEYS] = torch.cat((earlier, pos.expand(len(earlier), -1)), dim=1)
        return (), given

    def after(
        self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any
    ) -> None:
        """Forward hook: stores the key positions in the cache for the next call."""
        cache = cache_of(kwargs)
        if cache is None:
            values = output if isinstance(output, tuple) else vars(output).values()
            cache = next((value for value in values if hasattr(value, "get_seq_length")), None)
        if cache is None or int(cache.get_seq_length()) != kwargs[KEYS].shape[1]:
            return  # the call has put no keys there
        layer = _layer_of(cache)
        if layer is None:
            cache.layers.append(layer := _positions_layer()())
        tokens = kwargs.get("input_ids")
        tokens = kwargs["inputs_embeds"] if tokens is None else tokens
        keys = kwargs[KEYS].expand(len(tokens), -1)[:, None, :, None]
        layer.keys, layer.values, layer.is_initialized = keys, keys[..., :0], True
        layer.number, layer.in_use, layer.cache = self.number, False, weakref.ref(cache)


def _layer_of(cache: Any) -> Any:
    """Return the cache layer that holds the positions of the keys, or None."""
    return next((layer for layer in cache.layers if hasattr(layer, "number")), None)


@cache
def _positions_layer() -> Any:
    """Return the class of the cache layer that holds the positions of the keys, `(B, 1, K, 1)`.
    When transformers makes a mask, the class refuses a model whose keys do not match these
    positions."""
    from transformers.cache_utils import DynamicLayer

    class Positions(DynamicLayer):  # type: ignore[no-untyped-call]
        number = 0  # of the `_Tracker` that has filled the cache
        in_use = False  # by a forward pass with that tracker
        cache: Any  # a weak reference: a cycle would keep the cache until it is collected

        def reset(self) -> None:
            layers: Any = getattr(self.cache(), "layers", [])
            if any(layer is self for layer in layers):  # else a copy, which is refused elsewhere
                layers.remove(self)  # any model may fill it

        @property
        def is_sliding(self) -> bool:  # type: ignore[override]
            if self.get_seq_length() and not self.in_use:
                raise ShapeshiftError(
                    "this cache was filled by a model after use_position, and this model has its"
                    " own positions; start with an empty one"
                )
            return False

    return Positions


def _attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    position_ids: Tensor | None = None,
    shapeshift_keys: Tensor | None = None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """Attention as transformers calls it; returns `(B, Q, H, E)`."""
    if NAME not in vars(module):
        raise ShapeshiftError(
            "this model was built from the configuration of one with a position of shapeshift; call"
            " use_position, or model.set_attn_implementation('sdpa') for its own positions"
        )
    placed = vars(module)[NAME]
    position = placed[int(module.layer_idx) if len(placed) > 1 else 0]  # type: ignore[arg-type]
    if position_ids is None or shapeshift_keys is None:  # `_Tracker.before` gave them to the model
        raise ShapeshiftError(
            "this version of transformers keeps position_ids from its attention; use 5.23 or later"
        )
    # A window of a cache has the last keys alone; a static one has columns to spare, masked.
    num_keys, num_known = key.shape[2], shapeshift_keys.shape[1]
    pos_k = F.pad(shapeshift_keys[:, -num_keys:], (0, max(0, num_keys - num_known)))
    if attention_mask is not None and attention_mask.dtype is torch.bool:
        attention_mask = torch.where(attention_mask, 0.0, torch.finfo(query.dtype).min)
    groups = query.shape[1] // key.shape[1]
    key, value = (x.repeat_interleave(groups, dim=1) if groups > 1 else x for x in (key, value))
    query, key = position("rotate", query, key, position_ids, pos_k)
    if scaling is not None:  # `attend` divides by sqrt(E)
        query = query * (scaling * query.shape[-1] ** 0.5)
    heads = attend(query, key, value, attention_mask, position, position_ids, pos_k, dropout)
    return heads.transpose(1, 2).contiguous(), None


def _base(model: nn.Module) -> nn.Module:
    """Return the module that embeds the tokens and has the layers."""
    for part in model.modules():
        if type(part).__name__ in OWN_POSITIONS:
            return part
    raise ShapeshiftError(
        "use_position knows Llama, Qwen2, Qwen3, Mistral, GPT-NeoX, GPT-2 and OPT of Hugging Face,"
        f" not {type(model).__name__}; for layers of torch.nn see shapeshift.interop.torch_nn"
    )


def _refuse(what: str) -> NoReturn:
    raise ShapeshiftError(
        f"{what}; use one that acts on heads or scores, such as 'rope', 'alibi', 't5' or 'rpe', and"
        " shift_positions for SHAPE"
    )


def _build(
    position: Representation | str,
    config: Any,
    rotary: Any,
    num_layers: int,
    options: Any,
) -> nn.ModuleList:
    """Return the representations: one for all layers, or one for each. `rotary` is the model's own
    rotary embedding."""
    heads, dim = config.num_attention_heads, config.hidden_size
    head_dim = getattr(config, "head_dim", None) or dim // heads
    sizes = {"dim": dim, "num_heads": heads, "head_dim": head_dim}
    if isinstance(position, Representation):
        if options:
            raise ShapeshiftError(f"{type(position).__name__} is built and takes no options")
        check_sizes(position, **sizes)
        built = [position]
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
        settings: dict[str, Any] = {**sizes, "causal": True}
        is_rope = position in ("rope", "rotary") and rotary is not None
        if is_rope and not options.keys() & {"base", "fraction", "scaling", "rope_parameters"}:
            settings |= rope_config.read(config, None, None)
            width = 2 * len(rotary.inv_freq)
            if config.rope_parameters.get("partial_rotary_factor", 1) != 1 and width == head_dim:
                settings["rope_parameters"]["partial_rotary_factor"] = 1.0  # Llama ignores it
        elif is_rope and "rope_parameters" not in options:
            own = config.rope_parameters
            if own.get("rope_type", "default") != "default" and "scaling" not in options:
                raise ShapeshiftError(
                    f"this model scales its rope by {own['rope_type']!r}; name a scaling of ours,"
                    " such as scaling='none', 'linear' or 'yarn'"
                )
            settings |= {"pairs": "halves", "base": own["rope_theta"]}
            # Not `partial_rotary_factor`, of which Llama takes no notice; rounded down to a pair.
            settings["fraction"] = min(1.0, (2 * len(rotary.inv_freq) + 0.5) / head_dim)
        built = [get(position, **{**settings, **options}) for _ in range(num_layers)]
    first = built[0]
    if first.num_axes > 1:
        raise ShapeshiftError(
            f"{type(first).__name__} takes positions with {first.num_axes} axes, and use_position"
            " numbers tokens along one; use a kind with one, such as 'rope'"
        )
    if first.acts("embed") or first.acts("inputs"):
        _refuse(f"{type(first).__name__} {ELSEWHERE}")
    is_one = first.share_layers or not any(True for _ in first.parameters())
    return nn.ModuleList(built[:1] if is_one else built)
