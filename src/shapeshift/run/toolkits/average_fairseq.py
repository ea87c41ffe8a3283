"""Averages the last checkpoints of a folder; runs in the Python environment that has fairseq.

    python average_fairseq.py FOLDER NUMBER TARGET

fairseq has one like it in its repository, but does not install it. Checkpoints are read and written
by fairseq's own functions.
"""

from __future__ import annotations

import sys
from pathlib import Path


def main(folder: str, number: str, target: str) -> None:
    """Write the mean of the `number` checkpoints with the most updates."""
    from fairseq import checkpoint_utils

    load = checkpoint_utils.load_checkpoint_to_cpu
    by_update = {}
    for path in sorted(Path(folder).glob("checkpoint_*.pt")):
        if path.name != "checkpoint_best.pt":
            by_update[load(str(path))["optimizer_history"][-1]["num_updates"]] = path
    chosen = [by_update[update] for update in sorted(by_update)[-int(number) :]]
    models = [load(str(path))["model"] for path in chosen]
    state = load(str(chosen[-1]))
    state["model"] = {
        name: (sum(model[name].double() for model in models) / len(models)).float()
        for name in state["model"]
    }
    del state["last_optimizer_state"]
    checkpoint_utils.torch_persistent_save(state, target)
    print(f"mean of {', '.join(path.name for path in chosen)}")


if __name__ == "__main__":
    main(*sys.argv[1:])
