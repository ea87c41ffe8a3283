"""Which positions a model gives to the tokens of images in a text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from typing import Any

import torch
from torch import Tensor, nn

from shapeshift.interop.families import has_axes
from shapeshift.interop.measure import is_rotation, tensors_of

from .adapter import UnsupportedError
from .comparison import Comparison, Reading
from .probe import line

NAME, RIGHT = "positions of images", "time, row and column"

Part = int | tuple[int, int]
"""A number of text tokens, or an image's rows and columns of tokens."""

SHORT, LATE = (1, (2, 3), 2), (4, (3, 2), 2)
TWO = (2, (2, 3), 1, (1, 2), 2)
INPUTS: dict[str, tuple[tuple[Part, ...], ...]] = {
    "an image of 2 × 3 tokens after 1 token": (SHORT,),
    "an image of 3 × 2 tokens after 4 tokens": (LATE,),
    "two images": (TWO,),
    "two rows with padding on the right": (TWO, SHORT),
    "two rows with padding on the left": (SHORT, TWO),
}


def read_image_positions(it: Comparison) -> Iterator[Reading]:
    """Yield whether images have the positions of Qwen2-VL (Wang et al. 2024, section 2.1) when they
    reach the rotary embeddings, for a model that takes `image_grid_thw`, as transformers names it,
    and has several axes."""
    names = it.subject.names
    if "image_grid_thw" not in names or not has_axes(it.model):
        return
    if "images_per_sample" in names:
        return  # it draws images, whose tokens are not there yet
    try:
        for what, rows in INPUTS.items():
            wrong = _what_is_wrong(it, rows, "left" in what)
            if wrong:
                yield it.agree(NAME, None, f"{wrong}, for {what}", RIGHT, False)
                return
    except UnsupportedError as why:
        yield it.reading(NAME, None, str(why), RIGHT, "not measured")
        return
    yield it.agree(NAME, None, RIGHT, RIGHT, True)


def positions(parts: Sequence[Part]) -> tuple[Tensor, Tensor]:
    """Return positions `(3, T)` of time, row and column, and which tokens are of images, `(T,)`.

    A token of text has one number on all axes. In an image, time stands still, and rows and columns
    count from the number at which it begins. What follows begins after the largest number.
    """
    pos, is_image = torch.zeros(3, 0, dtype=torch.long), []
    for part in parts:
        start = 0 if not pos.numel() else int(pos.max()) + 1
        if isinstance(part, int):
            own = torch.arange(part).expand(3, -1)
        else:
            place = torch.arange(part[0] * part[1])
            own = torch.stack((0 * place, place // part[1], place % part[1]))
        pos = torch.cat((pos, start + own), dim=1)
        is_image += [not isinstance(part, int)] * own.shape[1]
    return pos, torch.tensor(is_image)


def _what_is_wrong(it: Comparison, rows: Sequence[Sequence[Part]], left: bool) -> str | None:
    """Return what is wrong with the positions of a batch of texts, padded on the left or on the
    right, or of the token that follows a single text; None if nothing is.

    Raises:
        UnsupportedError: the positions are not reached, or have other axes.
    """
    wanted, is_image = zip(*map(positions, rows), strict=True)
    length = max(map(len, is_image))
    mask, types = (torch.zeros(len(rows), length, dtype=torch.long) for _ in range(2))
    for row, image in enumerate(is_image):
        own = slice(length - len(image), None) if left else slice(len(image))
        mask[row, own], types[row, own] = 1, image.long()
    config: Any = getattr(it.model, "config", None)
    usable = it.subject.usable_ids
    ids = usable[torch.arange(length) % len(usable)].repeat(len(rows), 1)
    try:
        ids[types > 0] = config.image_token_id
        starts = (types.diff(dim=1, append=types[:, :1] * 0) > 0).nonzero(as_tuple=True)
        if hasattr(config, "vision_start_token_id"):  # by which transformers 4 finds images
            ids[starts] = config.vision_start_token_id
        merged = config.vision_config.spatial_merge_size
    except (AttributeError, TypeError) as error:
        raise UnsupportedError(line(error)) from error
    sizes = [part for parts in rows for part in parts if isinstance(part, tuple)]
    grids = torch.tensor([[1, merged * size[0], merged * size[1]] for size in sizes])
    given = {"attention_mask": mask, "mm_token_type_ids": types, "image_grid_thw": grids}
    reached, cache = _reaching(it, ids, given)
    if reached.shape[-1] != length:
        return f"{reached.shape[-1]} positions for {length} tokens"
    for row, pos in enumerate(wanted):
        if not torch.equal(reached[:, row, mask[row] > 0], pos.to(reached)):
            return "wrong positions" + (f" in row {row}" if len(rows) > 1 else "")
    if len(rows) == 1 and it.subject.takes_cache and cache is not None:
        reached, _ = _reaching(it, ids[:, :1], {it.subject.cache_name: cache})
        if not (reached == wanted[0].max() + 1).all():
            return "a wrong position of the next token, with a cache"
    return None


def _reaching(it: Comparison, ids: Tensor, given: dict[str, Any]) -> tuple[Tensor, Any]:
    """Return the positions `(3, B, T)` that reach the rotary embeddings of a model, and its cache.
    There is no need of the images themselves, whose tokens are embedded like others."""
    reached: list[Tensor] = []

    def see(part: nn.Module, args: Any, kwargs: dict[str, Any], output: Any) -> None:
        if is_rotation(tensors_of(output)):
            given = (x for x in (*args, *kwargs.values()) if isinstance(x, Tensor))
            reached.extend(x for x in given if x.ndim in (2, 3) and torch.equal(x, x.round()))

    model: nn.Module = it.model
    known = {name: value for name, value in given.items() if name in it.subject.names}
    with ExitStack() as hooks:
        for part in model.modules():
            hooks.enter_context(part.register_forward_hook(see, with_kwargs=True))
        try:
            out = model(ids, **known, use_cache=it.subject.takes_cache)
        except Exception as error:
            if not reached:
                raise UnsupportedError(line(error)) from error
            out = None  # positions that do not fit the tokens end in an error
    if not reached:
        raise UnsupportedError("no rotary embeddings with positions of several axes are reached")
    pos = reached[0] if reached[0].ndim == 3 else reached[0].unsqueeze(0)
    if len(pos) not in (1, 3):
        raise UnsupportedError(f"positions with {len(pos)} axes are not known here")
    return pos.expand(3, -1, -1), getattr(out, it.subject.cache_name, None)
