"""Which positions a model gives to the tokens of images in a text."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from .adapter import UnsupportedError
from .comparison import Comparison, Reading
from .probe import line, pad

NAME, RIGHT = "positions of images", "time, row and column"

Part = int | tuple[int, int]
"""A number of text tokens, or an image's rows and columns of tokens."""

TEXTS: dict[str, tuple[Part, ...]] = {
    "an image of 2 × 3 tokens after 1 token": (1, (2, 3), 2),
    "an image of 3 × 2 tokens after 4 tokens": (4, (3, 2), 2),
    "two images": (2, (2, 3), 1, (1, 2), 2),
}
PADDING = {
    "": (0, 0),
    ", and padding of 2 on the left": (2, 0),
    ", and padding of 3 on the right": (0, 3),
}
ABSENT = {
    "video_grid_thw", "second_per_grid_ts", "second_per_grids", "use_audio_in_video",
    "audio_seqlens",
}  # fmt: skip
"""Arguments of `get_rope_index` that a text with images alone does not need."""


def read_image_positions(it: Comparison) -> Iterator[Reading]:
    """Yield whether images have the positions of Qwen2-VL (Wang et al. 2024, section 2.1), for a
    model that computes them in `get_rope_index`, as those of transformers do."""
    model = next((part for part in it.model.modules() if hasattr(part, "get_rope_index")), None)
    if model is None or it.subject.side != "decoder":
        return
    try:
        for text, parts in TEXTS.items():
            for side, padding in PADDING.items():
                wrong = _what_is_wrong(model, parts, it.subject.usable_ids, *padding)
                if wrong:
                    yield it.agree(NAME, None, f"{wrong} for {text}{side}", RIGHT, False)
                    return
    except UnsupportedError as why:
        yield it.reading(NAME, None, str(why), RIGHT, "not measured")
        return
    yield it.agree(NAME, None, RIGHT, RIGHT, True)


def positions(parts: tuple[Part, ...]) -> tuple[Tensor, Tensor]:
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


def _what_is_wrong(
    model: Any, parts: tuple[Part, ...], usable_ids: Tensor, left: int, right: int
) -> str | None:
    """Return what is wrong with the positions of a text, or None.

    Raises:
        UnsupportedError: the model needs other arguments or has other axes.
    """
    arguments = inspect.signature(model.get_rope_index).parameters.values()
    takes_all = any(x.kind is x.VAR_KEYWORD for x in arguments)
    names = {x.name for x in arguments if x.kind is not x.VAR_KEYWORD}
    wanted, is_image = positions(parts)
    num_tokens = len(is_image)
    try:
        config = model.config
        ids = usable_ids[torch.arange(num_tokens) % len(usable_ids)]
        ids[is_image] = config.image_token_id
        if hasattr(config, "vision_start_token_id"):  # by which transformers 4 finds images
            ids[(~is_image[:-1] & is_image[1:]).nonzero()] = config.vision_start_token_id
        ids, mask = pad(ids[None], left, right)
        types = torch.zeros_like(ids)
        types[mask.bool()] = is_image.long()
        merged = config.vision_config.spatial_merge_size
        grids = [[1, merged * x[0], merged * x[1]] for x in parts if isinstance(x, tuple)]
        known = {
            "input_ids": ids,
            "mm_token_type_ids": types,
            "image_grid_thw": torch.tensor(grids),
            "attention_mask": mask,
        }
        unknown = sorted(names - known.keys() - ABSENT)
        if unknown:
            raise UnsupportedError(f"get_rope_index takes {unknown[0]}, which is not known here")
        given = {name: value for name, value in known.items() if takes_all or name in names}
        pos = model.get_rope_index(**given)[0]
    except UnsupportedError:
        raise
    except Exception as error:
        if left or right:
            return line(error)
        raise UnsupportedError(line(error)) from error
    if pos.ndim != 3 or len(pos) != len(wanted):
        raise UnsupportedError(f"positions of shape {tuple(pos.shape)} are not known here")
    if pos.shape[2] != num_tokens + left + right:
        return f"{pos.shape[2]} positions for {num_tokens + left + right} tokens,"
    return None if torch.equal(pos[:, 0, left : left + num_tokens], wanted.to(pos)) else "others"
