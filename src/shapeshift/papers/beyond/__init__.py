"""Beyond the papers: their designs with every position representation that the library has."""

from __future__ import annotations

from shapeshift.papers.beyond.clipping import ITEM as CLIPPING
from shapeshift.papers.beyond.layers import ITEM as LAYERS
from shapeshift.papers.beyond.learning import ITEM as LEARNING
from shapeshift.papers.beyond.master import ITEM as MASTER
from shapeshift.papers.beyond.places import ITEM as PLACES
from shapeshift.papers.beyond.slices import ITEM as SLICES
from shapeshift.papers.beyond.swapped import ITEM as SWAPPED
from shapeshift.papers.item import Paper

PAPER = Paper(
    title="Beyond the papers",
    citation="the designs of Shaw et al. 2018, Kiyono et al. 2021 and Miyazaki et al. 2024 with"
    " every position representation of Shapeshift",
    items={
        "master": MASTER,
        "places": PLACES,
        "clipping": CLIPPING,
        "layers": LAYERS,
        "slices": SLICES,
        "learning": LEARNING,
        "swapped": SWAPPED,
    },
)
