"""Every scheme compiles as one graph for all lengths, and draws anew in every call of it."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch._dynamo.testing import CompileCounterWithBackend

from shapeshift import SHAPE
from shapeshift._system.errors import ShapeshiftError
from shapeshift.positions import SCHEMES

from .conftest import COMPILED, close

SIZES = ((3, 9, 32), (2, 6, 11), (3, 4, 19))
"""Sentences, source and target lengths of some batches."""
ONE_LAYER = {"encoder_layers": 1, "decoder_layers": 1}


@pytest.fixture(autouse=True)
def _fresh_compiler():
    torch._dynamo.reset()
    # Numbers such as a dropout rate are constants, as without `dynamic=True`, or each model would
    # be compiled twice: it is lengths that must not be.
    with torch._dynamo.config.patch(specialize_float=True):
        yield
    torch._dynamo.reset()


@pytest.fixture
def graphs():
    """A backend that counts the graphs it is given and runs them as they are."""
    return CompileCounterWithBackend("eager")


@pytest.fixture
def graphs_with_backward():
    """As `graphs`, for graphs that were split into forward and backward and take no writes."""
    return CompileCounterWithBackend("aot_eager")


@pytest.fixture
def batches(sentences):
    source, target = sentences
    return [(_copy(source[:B, :S]), _copy(target[:B, :T])) for B, S, T in SIZES]


def _copy(ids: Tensor) -> Tensor:
    return ids.clone(memory_format=torch.contiguous_format)  # strides would count as a new graph


def compiled(module: nn.Module, backend: object) -> Callable[..., Tensor]:
    return torch.compile(module, fullgraph=True, dynamic=True, backend=backend)


@torch.no_grad()
def test_evaluation_is_one_graph_and_equals_eager(compiled_scheme, make_model, batches, graphs):
    model = make_model(compiled_scheme, **ONE_LAYER)
    run = compiled(model, graphs)
    for batch in batches:
        close(run(*batch), model(*batch))
    assert graphs.frame_count == 1


@pytest.mark.parametrize(
    "compiled_scheme",
    [
        COMPILED[0],
        *(pytest.param(*x.values, id=x.id, marks=pytest.mark.slow) for x in COMPILED[1:]),
    ],
    indirect=True,
)
def test_training_is_one_graph_and_equals_eager(
    compiled_scheme, make_model, batches, graphs_with_backward
):
    # The offsets of eager's second and third call can only be met by new draws.
    model = make_model(compiled_scheme, dropout=0.0, **ONE_LAYER).train()
    run = compiled(model, graphs_with_backward)
    outcomes = []
    for function in (model, run):
        torch.manual_seed(5)
        for batch in batches:
            model.zero_grad()
            hidden = function(*batch)
            hidden.square().mean().backward()
            grads = [p.grad for p in model.parameters() if p.grad is not None]
            outcomes.append([hidden.detach(), *(grad.clone() for grad in grads)])
    half = len(batches)
    for eager, ours in zip(outcomes[:half], outcomes[half:], strict=True):
        for expected, got in zip(eager, ours, strict=True):
            close(got, expected)
    assert graphs_with_backward.frame_count == 1


def test_the_drop_in_module_compiles_and_draws(graphs):
    module = SHAPE(dim=8)
    run = compiled(module, graphs)
    x = torch.zeros(4, 5, 8)
    short = torch.zeros(4, 3, 8)
    torch.manual_seed(4)
    made = [run(x), run(x), run(short)]
    torch.manual_seed(4)
    for got, like in zip(made, (x, x, short), strict=True):
        torch.testing.assert_close(got, module(like))
    assert not torch.equal(made[0], made[1])
    assert graphs.frame_count == 1


@pytest.mark.skipif(torch.__version__ < (2, 12), reason="its compiler shows an error of its own")
def test_beyond_the_learned_table_a_compiled_model_refuses(make_model, sentences):
    model = make_model(SCHEMES["learned"], **ONE_LAYER)
    run = torch.compile(model, dynamic=True, backend="eager")
    run(*sentences)
    with pytest.raises(ShapeshiftError, match=r"1100 tokens.*ends at 1023"):
        run(torch.full((1, 1100), 4), sentences[1][:1])
