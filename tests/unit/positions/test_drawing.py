"""Random positions come from torch's generator: what follows for copies, processes, recomputing."""

import copy
import json
import os
import subprocess
import sys
from collections.abc import Callable
from itertools import combinations

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from shapeshift.positions import Absolute, Randomized, Shifted, Sinusoidal

DIM = 8
KINDS: dict[str, Callable[[], Absolute]] = {
    "shifted": lambda: Shifted(max_offset=60),
    "randomized": lambda: Randomized(max_position=60, max_length=9),
}
kinds = pytest.mark.parametrize("make", KINDS.values(), ids=KINDS)


@kinds
def test_modules_copies_and_calls_draw_apart_and_the_global_seed_decides(make):
    torch.manual_seed(0)
    first, second = make(), make()
    drawn = [module(8, 5) for module in (first, first, second, copy.deepcopy(first))]
    for one, other in combinations(drawn, 2):
        assert not torch.equal(one, other)
    torch.manual_seed(0)
    assert torch.equal(make()(8, 5), drawn[0])


class Model(nn.Module):
    """With dropout before and after the positions: they have one generator in common."""

    def __init__(self, position_ids: Absolute) -> None:
        super().__init__()
        self.tokens, self.sines = nn.Embedding(20, DIM), Sinusoidal(dim=DIM)
        self.position_ids = position_ids
        self.inner, self.out = nn.Linear(DIM, DIM), nn.Linear(DIM, 1)
        self.dropout = nn.Dropout(0.2)

    def forward(self, ids):
        x = self.sines.embed(self.dropout(self.tokens(ids)), self.position_ids(*ids.shape))
        return self.out(self.dropout(torch.tanh(self.inner(x))))


def recomputed_by_reentry(model: nn.Module, ids: Tensor) -> Tensor:
    start = torch.zeros(1, requires_grad=True)  # or there would be no backward pass
    return checkpoint(lambda start: model(ids) + 0 * start, start, use_reentrant=True)


def compiled(model: nn.Module, ids: Tensor) -> Tensor:
    @torch.compile(backend="aot_eager", fullgraph=True)
    def run(ids):
        return checkpoint(model, ids, use_reentrant=False)

    return run(ids)


RUNS = {
    "non-reentrant": lambda model, ids: checkpoint(model, ids, use_reentrant=False),
    "reentrant": recomputed_by_reentry,
    "compiled": compiled,
}


@pytest.mark.parametrize(
    "run",
    [pytest.param(x, id=n, marks=[pytest.mark.long] * (n == "compiled")) for n, x in RUNS.items()],
)
@kinds
def test_gradient_checkpointing_gives_the_same_gradient(make, run):
    def gradients(run):
        torch.manual_seed(0)
        model = Model(make())
        batches = [torch.randint(20, (count, 6)) for count in (16, 16, 3)]
        passes = [run(model, ids) for ids in batches]  # all before the first backward pass
        (passes[0] * passes[1]).sum().backward()
        passes[2].square().sum().backward()
        return [p.grad for p in model.parameters() if p.grad is not None]

    plain = gradients(lambda model, ids: model(ids))
    assert len(plain) == 5
    for got, expected in zip(gradients(run), plain, strict=True):
        torch.testing.assert_close(got, expected)


PROCESS = """
import json, sys
import torch
from torch import nn
from shapeshift import shift_positions
from shapeshift.positions import Randomized, Shifted

rank, file, size = int(sys.argv[1]), sys.argv[2], (20, 5)
torch.distributed.init_process_group("gloo", init_method=f"file://{file}", rank=rank, world_size=2)

class Embedder(nn.Module):  # known by the names of its parts
    def __init__(self):
        super().__init__()
        self.wte = nn.Embedding(2, 1)
        self.wpe = nn.Embedding.from_pretrained(torch.arange(600.0)[:, None])
    def forward(self, ids):
        return self.wpe(torch.arange(ids.shape[1]))

hooked = Embedder()
shift_positions(hooked, 500)
alike = Shifted(max_offset=500)
alike.per_rank = False
modules = {
    "shifted": lambda: Shifted(max_offset=500)(*size)[:, 0],
    "randomized": lambda: Randomized(max_position=500)(*size).sum(1),
    "shift_positions": lambda: hooked(torch.zeros(size).long())[:, 0, 0],
    "alike": lambda: alike(*size)[:, 0],
}
drawn = {}
for name, draw in modules.items():
    torch.manual_seed(7)
    drawn[name] = [draw().tolist(), draw().tolist()]
print(json.dumps(drawn))
torch.distributed.barrier()  # or one may leave while the other still connects
torch.distributed.destroy_process_group()
"""


@pytest.mark.long
def test_processes_with_the_same_seed_draw_apart(tmp_path):
    command = [sys.executable, "-c", PROCESS]
    environment = os.environ | {"GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
    options = {"env": environment, "stdout": subprocess.PIPE, "text": True}
    commands = [[*command, str(rank), str(tmp_path / "store")] for rank in range(2)]
    started = [subprocess.Popen(each, **options) for each in commands]
    first, second = (json.loads(process.communicate(timeout=120)[0]) for process in started)
    assert first.pop("alike") == second.pop("alike")
    for name in ("shifted", "randomized", "shift_positions"):
        calls = [tuple(numbers) for process in (first, second) for numbers in process[name]]
        assert len(set(calls)) == 4, name
        together = [*zip(first[name][0], second[name][0], strict=True)]
        assert sum(one == other for one, other in together) < 5, name
        if name in ("shifted", "shift_positions"):
            assert 0 <= min(map(min, calls)) < 50 < 450 < max(map(max, calls)) <= 500
