"""A step of decoding can be recorded once and repeated, as a CUDA graph is.

On a CPU, a record is the list of PyTorch's operators with the very tensors that they read and
write. What is decided or counted in Python, and what is not in tensors that stay, is then lost, and
the translations differ.
"""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from shapeshift import kernels
from shapeshift.decoding import recording
from shapeshift.decoding.search import beam_search
from shapeshift.model import Transformer, transformer
from shapeshift.positions import SCHEMES

from .conftest import Watch


class Records:
    """Stands for `recording.record`; counts records and repetitions."""

    def __init__(self) -> None:
        self.made = self.repeated = 0

    def __call__(self, work):
        operators: list[tuple[Any, Any, Any]] = []
        with Watch(lambda *called: operators.append(called)):
            work()
        self.made += 1
        done = True  # by watching, where a GPU only records

        def repeat():
            nonlocal done
            if done:
                done = False
                return
            self.repeated += 1
            for operator, (args, kwargs), out in operators:
                again = operator(*args, **kwargs)
                for old, new in zip(tensors(out), tensors(again), strict=True):
                    if old.untyped_storage().data_ptr() != new.untyped_storage().data_ptr():
                        old.copy_(new)

        return repeat


class NoneWaits:
    """Stands for what is known of all models."""

    def __contains__(self, model):
        return True

    def __getitem__(self, model):
        return False


def tensors(out: Any) -> list[Tensor]:
    several = out if isinstance(out, list | tuple) else [out]
    return [x for x in several if isinstance(x, Tensor)]


@pytest.fixture
def records(monkeypatch):
    """Lets beam search record, with room for few tokens, without the kernels in C."""
    made = Records()
    monkeypatch.setattr(recording, "record", made)
    # On a CPU positions are looked at, on a GPU they are not: see test_no_waiting.py.
    monkeypatch.setattr(recording, "_waits", NoneWaits())
    monkeypatch.setattr(transformer, "ROOM", 4)
    monkeypatch.setattr(kernels, "serves", lambda *_: False)
    return made


def translations(
    model: Transformer, source: Tensor, beam: int, records: bool, **how: Any
) -> list[list[Any]]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(recording, "serves", lambda device: records)
        found = beam_search(
            model.start(source, beam),
            torch.tensor([14, 6, 11]),
            beam=beam,
            n_best=beam,
            check_every=2,
            **how,
        )
    return [[(x.tokens, pytest.approx(x.log_prob, abs=1e-5)) for x in each] for each in found]


@pytest.mark.parametrize("beam", [1, 3])
def test_translations_are_those_of_single_steps(
    beam, varied_scheme, make_model, sentences, records
):
    model = make_model(varied_scheme, encoder_layers=1)
    model.output.weight.data[3] *= 0.2  # `</s>` is less probable then
    found = [translations(model, sentences[0], beam, way) for way in (True, False)]
    assert found[0] == found[1]
    if not model.start(sentences[0]).reserves:
        assert not records.made
        return
    assert records.made >= 2, "it never needed more room"
    assert records.repeated >= 2


@pytest.mark.parametrize("beam", [1, 3])
@pytest.mark.parametrize("offset", [7, torch.tensor([0, 4, 9])], ids=["one", "each"])
@pytest.mark.parametrize("fixed", [False, True], ids=["rows leave", "rows stay"])
def test_with_offsets(beam, offset, fixed, make_model, sentences, records):
    model = make_model(SCHEMES["shape"])
    model.output.weight.data[3] *= 0.2
    model.start = lambda source, beam: Transformer.start(model, source, beam, offset=offset)
    found = [translations(model, sentences[0], beam, x, fixed_rows=fixed) for x in (True, False)]
    assert found[0] == found[1]
    assert records.repeated >= 2


def test_rows_that_leave_are_not_computed(make_model, sentences, records, monkeypatch):
    sizes = []

    def step(self, tokens):
        sizes.append(len(tokens))
        return run(self, tokens)

    run = transformer.DecoderState.step
    monkeypatch.setattr(transformer.DecoderState, "step", step)
    model = make_model(SCHEMES["ape"])
    model.output.weight.data[3] *= 0
    translations(model, sentences[0], 2, True)
    assert sizes[0] == 6
    assert sizes[-1] == 4  # the second of three has 6 tokens, and room is made at 8


class Endless:
    """A decoder that gives the same logits in each step."""

    model = torch.nn.Identity()

    def __init__(self, num_rows: int):
        self.logits = torch.randn(num_rows, 50)

    def reserve(self, num_tokens, most):
        return 8 if num_tokens <= 8 else 16

    def step(self, tokens):
        return self.logits[: len(tokens)]

    def reorder(self, rows):
        pass


@pytest.mark.parametrize("beam", [1, 3])
def test_search_itself_does_not_wait(beam, monkeypatch):
    records = []
    monkeypatch.setattr(recording, "record", lambda work: records.append(1) or work)
    monkeypatch.setattr(recording, "serves", lambda device: True)
    monkeypatch.setattr(kernels, "serves", lambda *_: False)
    beam_search(Endless(2 * beam), torch.tensor([16, 16]), beam=beam, check_every=4)
    assert len(records) == 2
    assert recording._waits[Endless.model] is False


WAITING: dict[str, Callable[[Tensor], Any]] = {
    "reads": lambda x: x.sum().item(),
    "truth": lambda x: bool((x > 0).any()),
    "sizes": lambda x: x[x > 0],
    "places": lambda x: x.nonzero(),
    "counts": lambda x: x.long().bincount(),
    "equal": lambda x: torch.equal(x, x),
    "copies": lambda x: x.to("meta"),
    "copies a number": lambda x: x.sum().to("meta"),
}


@pytest.mark.parametrize("inference", [False, True])
@pytest.mark.parametrize("what", [*WAITING.values(), None], ids=[*WAITING, "nothing"])
def test_work_that_waits_is_done_as_it_is(what, inference, monkeypatch):
    """In inference mode, operators are seen that are others else."""
    calls: list[int] = []
    records: list[int] = []
    model, x = torch.nn.Identity(), torch.ones(3)

    def work():
        calls.append(1)
        if len(calls) == 1:
            x.sum().item()  # once
        y = torch.zeros(3)
        y[x.long()] = (x * 2).sum() / x.index_select(0, torch.tensor([1]))
        if what is not None:
            what(x)

    monkeypatch.setattr(recording, "record", lambda work: records.append(1) or work)
    with torch.inference_mode(inference):
        for _ in range(2):
            run = recording.Recorded(work, model)
            for _ in range(4):
                run()
    assert len(calls) == 8
    assert len(records) == (0 if what else 2)
