"""What the items of the NHK paper share: where its findings show, if not here."""

from __future__ import annotations

LONG_RUNS = "the paper's runs are 650,000 updates of 256 pairs of real text: see scale paper"
"""Of Tables 2 and 3."""

SLICES = "the paper's slices have 394,505 to 8.1 million pairs of real text: see scale paper"
"""Of Figure 3 and Table 4."""

TENTH = "the paper trains on 1.8 million pairs of real text: see scale paper"
"""Of Tables 5 and 6: a tenth of its French-German."""
