"""What the items of Shaw et al. 2018 share: where its findings show, if not here."""

from __future__ import annotations

LONG_RUNS = "the paper's runs are 100,000 updates of six layers on WMT 2014: see scale paper"
"""Of the base model, which Tables 2 and 3 are about."""
