"""Several threads that call one model after `use_position` get what one thread gets."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from random import Random
from typing import Any

import pytest
import torch
from tests.unit.tiny_models import build
from torch import Tensor

from shapeshift import use_position

KINDS = ("rope", "alibi", "t5", "rpe")
GREEDY: dict[str, Any] = {
    "max_new_tokens": 5, "do_sample": False, "pad_token_id": 1, "eos_token_id": None
}  # fmt: skip


def swapped(family: str, position: str) -> Any:
    """Return a model whose positions matter for its tokens."""
    model = build(family)
    use_position(model, position)
    for table in model.parameters():
        if table.ndim > 1:
            table.data.mul_(4)
    return model


def prompt(random: Random, rows: int | None = None) -> dict[str, Tensor]:
    """Return a batch of prompts that are padded on the left."""
    rows, length = rows or random.randint(1, 3), random.randint(3, 20)
    generator = torch.Generator().manual_seed(random.randrange(10**6))
    ids = torch.randint(4, 60, (rows, length), generator=generator)
    mask = torch.ones_like(ids)
    for row in range(1, rows):
        mask[row, : random.randrange(length - 1)] = 0
    return {"input_ids": ids, "attention_mask": mask}


def generated(settings: dict[str, Any]) -> Callable[[Any, Random], Tensor]:
    def call(model: Any, random: Random) -> Tensor:
        rows = 1 if "prompt_lookup_num_tokens" in settings else None
        tokens: Tensor = model.generate(**prompt(random, rows), **GREEDY, **settings)
        return tokens

    return call


def continued(model: Any, random: Random) -> Tensor:
    """A chat: a cache is read on, and cut where the answer is taken back."""
    first, second = (prompt(random, rows=2)["input_ids"] for _ in range(2))
    out = model.generate(first, return_dict_in_generate=True, **GREEDY)
    cache = out.past_key_values
    if not hasattr(model.config, "sliding_window"):  # of which a cache forgets what is before
        cache.crop(first.shape[1] - cache.get_seq_length())
    cache.reorder_cache(torch.tensor([1, 0]))
    ids = torch.cat((out.sequences[:, : cache.get_seq_length()].flip(0), second), dim=1)
    tokens: Tensor = model.generate(ids, past_key_values=cache, **GREEDY)
    return tokens


def packed(model: Any, random: Random) -> Tensor:
    """Two sequences in a row: positions come with the call, and there is no cache."""
    ids = prompt(random)["input_ids"]
    count = torch.arange(ids.shape[1])
    pos = torch.where(count < 2, count, count - 2).expand_as(ids)
    logits: Tensor = model(ids, position_ids=pos, use_cache=False).logits
    return logits


CALLS: dict[str, Callable[[Any, Random], Tensor]] = {
    "greedy": generated({}),
    "beams": generated({"num_beams": 3}),
    "without a cache": generated({"use_cache": False}),
    "static": generated({"cache_implementation": "static"}),
    "assisted": generated({"prompt_lookup_num_tokens": 3}),
    "continued": continued,
    "packed": packed,
}


@pytest.fixture
def frequent_switches() -> Iterator[None]:
    """Threads of Python give way a hundred times as often."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(before / 100)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("frequent_switches")
@pytest.mark.parametrize(
    ("family", "position", "num_rounds"),
    [
        *(("Llama", position, 2) for position in KINDS),
        *(
            pytest.param(family, position, 140, marks=pytest.mark.slow)
            for family in ("Llama", "Mistral")
            for position in KINDS
        ),
    ],
)
def test_threads_get_what_one_thread_gets(family: str, position: str, num_rounds: int) -> None:
    model, random = swapped(family, position), Random(f"{family} {position}")

    def run(job: tuple[str, int]) -> Tensor:
        with torch.no_grad():  # which each thread sets for itself
            return CALLS[job[0]](model, Random(job[1]))

    jobs = [(name, random.randrange(10**9)) for name in [*CALLS] * num_rounds]
    random.shuffle(jobs)
    expected = [run(job) for job in jobs]
    with ThreadPoolExecutor(8) as pool:
        found = [*pool.map(run, jobs)]
    wrong = [
        job for job, *pair in zip(jobs, found, expected, strict=True) if not torch.equal(*pair)
    ]
    assert wrong == []
