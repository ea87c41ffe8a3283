"""The page of `shapeshift inspect`, as one HTML file."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.image import imsave
from numpy.typing import NDArray

from shapeshift.run.inspection import Inspection, Kind, by_distance
from shapeshift.study.report.page import asset, render

_COLOUR = (47, 127, 214)
"""Of attention, on light and on dark paper; its opacity is the root of the probability, so that
small ones can be seen."""

_FURTHEST = 12
"""Distances are drawn up to this one."""

_WIDTH, _HEIGHT = 100, 30
"""Of a chart, in the units of its drawing."""


def inspection_page(sentence: str, runs: Sequence[Inspection]) -> str:
    """Return the page. It loads nothing, has no script, and follows the light or dark theme."""
    kinds = [
        [_kind(f"{number}-{n}", run, *each) for n, each in enumerate(run.attention.items())]
        for number, run in enumerate(runs)
    ]
    return render(
        "inspection.html",
        width=_WIDTH,
        height=_HEIGHT,
        title="Inside a model" if len(runs) == 1 else f"Inside {len(runs)} models",
        style=asset("page.css") + asset("inspection.css"),
        sentence=sentence,
        runs=[*zip(runs, kinds, strict=True)],
    )


def _kind(anchor: str, run: Inspection, name: Kind, probs: NDArray[np.float32]) -> dict[str, Any]:
    """Return the template's data for the attention of one kind, `(L, H, Q, K)`."""
    layers = []
    causal = name == "decoder self-attention"  # nothing is to the right of a token
    for layer, heads in enumerate(probs):
        reach, highest, lines = (0, 0.0, []) if name == "cross-attention" else _lines(heads, causal)
        shown = [
            {"id": f"map-{anchor}-{layer}-{head}", "image": _image(matrix)}
            for head, matrix in enumerate(heads)
        ]
        layers.append({"heads": shown, "reach": reach, "highest": f"{highest:.2f}", "lines": lines})
    return {
        "name": name,
        "rows": run.source if name == "encoder self-attention" else run.target,
        "columns": run.target if name == "decoder self-attention" else run.source,
        "layers": layers,
        "causal": causal,
    }


def _image(matrix: NDArray[np.float32]) -> str:
    """Return an image with a pixel for each probability `(Q, K)`, as a data URL."""
    pixels = np.empty((*matrix.shape, 4), dtype=np.uint8)
    pixels[..., :3] = _COLOUR
    pixels[..., 3] = np.sqrt(matrix.clip(0, 1)) * 255
    written = io.BytesIO()
    imsave(written, pixels, format="png")
    return "data:image/png;base64," + base64.b64encode(written.getvalue()).decode()


def _lines(heads: NDArray[np.float32], causal: bool) -> tuple[int, float, list[str]]:
    """Return the charts of a layer: the furthest distance, the highest value, and for each head the
    line of its mean attention by distance."""
    distances, means = by_distance(heads)
    reach = min(_FURTHEST, max(1, distances[-1]))
    last = 0 if causal else reach
    shown = [n for n, distance in enumerate(distances) if -reach <= distance <= last]
    highest = float(means[:, shown].max())
    across = [_WIDTH * (distances[n] + reach) / (last + reach) for n in shown]
    up = _HEIGHT * (1 - means[:, shown] / highest)
    lines = [" ".join(f"{x:.1f},{y:.1f}" for x, y in zip(across, row, strict=True)) for row in up]
    return reach, highest, lines
