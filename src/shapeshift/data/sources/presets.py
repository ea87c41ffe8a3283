"""The papers' corpora by name, such as `data.corpus: wmt14-en-de`; they are in `presets.yaml`.

docs/paper-scale.md says where the text is from and how it differs from the papers'.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

CORPORA: dict[str, dict[str, Any]] = yaml.safe_load(
    Path(__file__).with_name("presets.yaml").read_text("utf-8")
)
"""Name → the section `data.corpus`."""
