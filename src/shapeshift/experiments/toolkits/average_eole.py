"""A program for the Python that has Eole: the mean of several checkpoints.

    python average_eole.py TARGET FOLDER...

Eole has none. Settings and vocabulary are those of the last folder.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

WEIGHTS = "model.00.safetensors"


def main(target: str, *folders: str) -> None:
    """Write the folder `target`, which is a checkpoint like the others."""
    from safetensors.torch import load_file, save_file

    total = {name: x.double() for name, x in load_file(Path(folders[0]) / WEIGHTS).items()}
    for folder in folders[1:]:
        for name, x in load_file(Path(folder) / WEIGHTS).items():
            total[name] += x
    made = Path(target)
    made.mkdir(exist_ok=True)
    for name in ("config.json", "vocab.json"):
        shutil.copy(Path(folders[-1]) / name, made / name)
    save_file({name: (x / len(folders)).float() for name, x in total.items()}, made / WEIGHTS)
    print(f"mean of {', '.join(Path(folder).name for folder in folders)}")


if __name__ == "__main__":
    main(*sys.argv[1:])
