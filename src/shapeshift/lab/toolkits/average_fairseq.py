"""A program for the Python that has fairseq: the mean of the last checkpoints of a folder.

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

    by_update = {}
    for path in sorted(Path(folder).glob("checkpoint_*.pt")):
        if path.name != "checkpoint_best.pt":
            state = checkpoint_utils.load_checkpoint_to_cpu(str(path))
            by_update[state["optimizer_history"][-1]["num_updates"]] = path
            del state
    chosen = [by_update[update] for update in sorted(by_update)[-int(number) :]]
    mean = None
    for path in chosen:
        state = checkpoint_utils.load_checkpoint_to_cpu(str(path))
        if mean is None:
            mean = state
            mean["model"] = {name: tensor.double() for name, tensor in state["model"].items()}
        else:
            for name, tensor in state["model"].items():
                mean["model"][name] += tensor
    if mean is None:
        sys.exit(f"{folder} holds no checkpoint")
    mean["model"] = {name: (total / len(chosen)).float() for name, total in mean["model"].items()}
    del mean["last_optimizer_state"]
    checkpoint_utils.torch_persistent_save(mean, target)
    print(f"mean of {', '.join(path.name for path in chosen)}")


if __name__ == "__main__":
    main(*sys.argv[1:])
