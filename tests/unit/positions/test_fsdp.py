"""FSDP shards the weights of a kind that layers share, and gathers them for each hook."""

import subprocess
import sys

import pytest

PROGRAM = """
import sys, torch, torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from shapeshift.model import ModelConfig, build, label_smoothed_loss
from shapeshift.positions import Representation

store = dist.FileStore(sys.argv[1], 1)
dist.init_process_group("gloo", store=store, rank=0, world_size=1)
mesh = init_device_mesh("cpu", (1,))
batch = (
    torch.tensor([[5, 6, 3], [5, 3, 0]]),
    torch.tensor([[2, 7, 8], [2, 7, 0]]),
    torch.tensor([[7, 8, 3], [7, 3, 0]]),
)
for scheme in ("t5", "rpe", "fire"):
    model = build(ModelConfig(size="tiny", dropout=0.0), scheme, 12, 12)
    losses, grads = [], []
    for sharded in (False, True):
        if sharded:
            model.zero_grad()
            groups = {}  # kinds that share a table are one group, as FSDP asks
            for kind in model.modules():
                if isinstance(kind, Representation) and (own := tuple(kind.parameters())):
                    groups.setdefault(own, []).append(kind)
            each_layer = len(model.encoder) + len(model.decoder)
            assert len(groups) == (2 if scheme == "t5" else each_layer)
            for group in (*groups.values(), *model.encoder, *model.decoder, model):
                fully_shard(group, mesh=mesh)
        losses.append(label_smoothed_loss(model, *batch, 0.1).smoothed)
        losses[-1].backward()
        every = [x.grad for x in model.parameters() if x.grad is not None]
        grads.append([x.full_tensor() if sharded else x.clone() for x in every])
    torch.testing.assert_close(losses[1], losses[0])
    torch.testing.assert_close(grads[1], grads[0], rtol=1e-4, atol=1e-5)
"""


@pytest.mark.long
def test_sharded_kinds_train_as_whole_ones(tmp_path):
    command = [sys.executable, "-W", "ignore", "-c", PROGRAM, str(tmp_path / "store")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
