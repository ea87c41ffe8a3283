"""Beyond the papers: their designs with every position representation that the library has."""

from __future__ import annotations

from shapeshift.papers.beyond.clipping import ITEM as CLIPPING
from shapeshift.papers.beyond.cross import ITEM as CROSS
from shapeshift.papers.beyond.curves import ITEM as CURVES
from shapeshift.papers.beyond.directions import ITEM as DIRECTIONS
from shapeshift.papers.beyond.layers import ITEM as LAYERS
from shapeshift.papers.beyond.learning import ITEM as LEARNING
from shapeshift.papers.beyond.master import ITEM as MASTER
from shapeshift.papers.beyond.offsets import ITEM as OFFSETS
from shapeshift.papers.beyond.places import ITEM as PLACES
from shapeshift.papers.beyond.similarity import ITEM as SIMILARITY
from shapeshift.papers.beyond.sizes import ITEM as SIZES
from shapeshift.papers.beyond.slices import ITEM as SLICES
from shapeshift.papers.beyond.swapped import ITEM as SWAPPED
from shapeshift.papers.beyond.tokens import ITEM as TOKENS
from shapeshift.papers.beyond.values import ITEM as VALUES
from shapeshift.papers.item import Paper

PAPER = Paper(
    title="Beyond the papers",
    citation="the designs of Shaw et al. 2018, Kiyono et al. 2021 and Miyazaki et al. 2024 with"
    " every position representation of Shapeshift",
    items={
        "master": MASTER,
        "similarity": SIMILARITY,
        "swapped": SWAPPED,
        "tokens": TOKENS,
        "curves": CURVES,
        "offsets": OFFSETS,
        "learning": LEARNING,
        "sizes": SIZES,
        "clipping": CLIPPING,
        "values": VALUES,
        "cross": CROSS,
        "directions": DIRECTIONS,
        "slices": SLICES,
        "places": PLACES,
        "layers": LAYERS,
    },
)
