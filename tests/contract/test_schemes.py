"""What every position scheme promises of the model it is built into, in float64."""

from copy import deepcopy

import pytest
import torch
from torch import Tensor

from shapeshift import kernels
from shapeshift._system.errors import ShapeshiftError
from shapeshift.data.batching import make_batch
from shapeshift.decoding.capacity import capacity
from shapeshift.decoding.scoring import score_references
from shapeshift.decoding.search import beam_search
from shapeshift.kernels import decoding
from shapeshift.model import label_smoothed_loss
from shapeshift.positions import KINDS, SCHEMES, Part, PoPE, PositionIds, Scheme

from .conftest import close

EACH = torch.tensor([3, 0, 250])
TOKENS, CHUNKS = [1] * 16, [5, 1, 1, 6, 3]


@pytest.mark.parametrize(
    ("sizes", "offset"),
    [(TOKENS, EACH), (CHUNKS, 40)],
    ids=["tokens, an offset each", "chunks, one offset"],
)
@torch.no_grad()
def test_incremental_is_full(scheme, sizes, offset, make_model, logits, sentences):
    model = make_model(scheme)
    source, target = sentences
    full = logits(model, source, target, offset)
    state = model.start(source, offset=offset)
    made = [model.project(state.extend(chunk)) for chunk in target.split(sizes, dim=1)]
    close(torch.cat(made, dim=1), full)


@pytest.mark.parametrize(
    ("offset", "begins"), [(None, True), (EACH, False)], ids=["begins once", "an offset each"]
)
@torch.no_grad()
def test_beams_are_reordered_and_sentences_left_out(
    scheme, offset, begins, make_model, logits, sentences
):
    model, beam = make_model(scheme), 2
    source = sentences[0]
    rng = torch.Generator().manual_seed(3)
    state = model.start(source, beam, offset=offset)
    last = torch.full((len(source) * beam,), 2)
    prefixes, owners = last[:, None], torch.arange(len(source))
    # Beams change places; sentence 1 ends; the rest change places; sentence 0 ends.
    orders = [[1, 0, 2, 2, 5, 4], [0, 0, 4, 5], [1, 0, 3, 3], [3, 2], [1, 1]]
    for order in orders:
        if begins and order is orders[0]:
            got = state.begin(last[::beam]).repeat_interleave(beam, 0)
        else:
            got = state.step(last)
        rows = owners.repeat_interleave(beam)
        shift = offset[rows] if isinstance(offset, Tensor) else offset
        close(got, logits(model, source[rows], prefixes, shift)[:, -1])
        chosen = torch.tensor(order)
        state.reorder(chosen)
        owners = owners[chosen[::beam] // beam]
        last = torch.randint(4, 11, (len(order),), generator=rng)
        prefixes = torch.cat((prefixes[chosen], last[:, None]), dim=1)
    assert owners.tolist() == [2]


def test_ids_that_depend_on_later_tokens_are_refused_in_decoding(make_model, sentences):
    ids = PositionIds("coupled", {"function": lambda tokens: tokens.argsort(dim=1)})
    state = make_model(Scheme(ids, (Part("sinusoidal"),))).start(sentences[0])
    state.extend(torch.tensor([[2, 8], [2, 9], [2, 7]]))
    with pytest.raises(ShapeshiftError, match="Coupled has changed the position ids of earlier"):
        state.step(torch.tensor([0, 1, 0]))


def test_gradients_go_through_beams_that_are_reordered(make_model, sentences):
    model = make_model(SCHEMES["ape"])
    source, order = sentences[0], torch.tensor([1, 0, 2, 2, 5, 4])
    tokens = torch.arange(4, 10)

    def last(state):
        for _ in range(3):
            state.step(tokens)
            state.reorder(order)
        return state.step(tokens)

    got = last(model.start(source, 2))
    with torch.no_grad():
        close(got, last(model.start(source, 2)))
    got.square().sum().backward()
    assert all(x.grad is not None and x.grad.isfinite().all() for x in model.parameters())


@pytest.mark.skipif(not kernels.is_available(torch.float32), reason="no C compiler")
@torch.no_grad()
def test_steps_by_a_kernel_are_full(scheme, make_model, logits, sentences, monkeypatch):
    """In float32, where the attention of a step is computed row by row."""
    calls, run = [], decoding.decode_step
    monkeypatch.setattr(
        decoding, "decode_step", lambda *x, **how: calls.append(x) or run(*x, **how)
    )
    reference = make_model(scheme, dim=2 * kernels.LANES)
    model, beam = deepcopy(reference).float(), 3
    source, rng = sentences[0], torch.Generator().manual_seed(3)
    rows = torch.arange(len(source)).repeat_interleave(beam)
    state = model.start(source, beam)
    prefixes = torch.full((len(rows), 1), 2)
    got = state.begin(prefixes[::beam, 0]).repeat_interleave(beam, 0)
    for length in range(1, 17):
        if length in (1, 2, 3, 9, 16):
            full = logits(reference, source[rows], prefixes)[:, -1].float()
            torch.testing.assert_close(got, full, rtol=1e-4, atol=1e-4)
        order = torch.arange(len(rows)).view(-1, beam)[:, [1, 0, length % 2]].flatten()
        state.reorder(order)
        tokens = torch.randint(4, 11, (len(rows), 1), generator=rng)
        prefixes = torch.cat((prefixes[order], tokens), 1)
        got = state.step(tokens[:, 0])
    attentions = [x for layer in model.decoder for x in (layer.attention, layer.cross_attention)]
    slow = [
        x.position.acts("score") or any(isinstance(kind, PoPE) for kind in x.position.kinds())
        for x in attentions
    ]
    assert len(calls) == 17 * slow.count(False)


@torch.no_grad()
def test_padding_and_neighbours_change_nothing(scheme, make_model, logits, sentences):
    model = make_model(scheme)
    source, target = sentences
    together = logits(model, source, target)
    for row, length in enumerate((9, 6, 2)):
        alone = logits(model, source[row : row + 1, :length], target[row : row + 1, :7])
        close(alone[0], together[row, :7])


@torch.no_grad()
def test_later_target_tokens_change_nothing(scheme, make_model, logits, sentences):
    model = make_model(scheme)
    source, target = sentences
    other = target.clone()
    other[:, 7:] = 15 - other[:, 7:].clamp(min=5)
    before, after = logits(model, source, target), logits(model, source, other)
    close(after[:, :7], before[:, :7])
    assert (after[:, 7:] - before[:, 7:]).abs().max() > 1e-3


@torch.no_grad()
def test_shift_invariance_is_what_is_declared(scheme, make_model, logits, sentences):
    model = make_model(scheme)
    source, target = sentences
    base = logits(model, source, target, 0)
    # As far as a threshold may be from which on a kind looks at positions (FIRE).
    far = 0 if capacity(model).source else 2000
    one = logits(model, source, target, far + 117)
    each = logits(model, source, target, far + torch.tensor([2, 60, 400]))
    if all(KINDS[part.kind].build.shift_invariant for part in scheme.parts):
        close(one, base)
        close(each, base)
    else:
        assert (one - base).abs().amax(dim=(1, 2)).min() > 1e-3
        assert (each - base).abs().amax(dim=(1, 2)).min() > 1e-3


@pytest.mark.parametrize("assign", [False, True], ids=["to_empty", "assign"])
def test_a_model_built_without_memory_gets_all_it_needs_from_saved_weights(
    varied_scheme, assign, make_model, logits, sentences, tmp_path
):
    model = make_model(varied_scheme)
    with torch.device("meta"):
        other = make_model(varied_scheme)
    if not assign:
        other.to_empty(device="cpu")
        for tensor in (*other.parameters(), *other.buffers()):
            tensor.data.fill_(1)  # what was in this memory before
    torch.save(model.state_dict(), tmp_path / "weights.pt")
    saved = torch.load(tmp_path / "weights.pt", weights_only=True)
    assert saved.keys() == dict(model.named_parameters(remove_duplicate=False)).keys()
    other.load_state_dict(saved, assign=assign)
    assert torch.equal(logits(other, *sentences), logits(model, *sentences))


def test_copies_share_what_the_model_shares_and_nothing_with_it(
    scheme, make_model, logits, sentences, tmp_path
):
    model = make_model(scheme)
    torch.save(model, tmp_path / "model.pt")
    loaded = torch.load(tmp_path / "model.pt", weights_only=False)
    copies, wanted = (deepcopy(model), loaded), logits(model, *sentences)
    for parameter in model.parameters():
        torch.nn.init.ones_(parameter)
    for copy in copies:
        assert torch.equal(logits(copy, *sentences), wanted)
        assert copy.state_dict().keys() == model.state_dict().keys()
        assert [*dict(copy.named_parameters())] == [*dict(model.named_parameters())]


@torch.no_grad()
def test_bfloat16_stays_close(scheme, make_model, logits, sentences):
    model = make_model(scheme).bfloat16().float()
    exact = logits(model, *sentences)
    with torch.autocast("cpu", torch.bfloat16):
        cast_by_operators = logits(model, *sentences)
    for rough in (cast_by_operators, logits(model.bfloat16(), *sentences)):
        assert rough.dtype == torch.bfloat16
        assert float((rough.float() - exact).norm() / exact.norm()) < 0.04


def test_decoding_in_training_mode_is_refused(make_model, sentences):
    model = make_model(SCHEMES["shape"]).train()
    with pytest.raises(ShapeshiftError, match=r"evaluation mode.*call model\.eval\(\)"):
        model.start(sentences[0])


def test_every_weight_learns(scheme, make_model, sentences):
    model = make_model(scheme, dropout=0.1, attention_dropout=0.1).train()
    source, target = sentences
    loss = label_smoothed_loss(model, source, target, target.roll(-1, dims=1), 0.1)
    loss.smoothed.backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name


def test_no_layer_computes_padding_and_the_gradients_are_the_same(scheme, make_model):
    source = torch.tensor([[5, 6, 7, 8, 3], [9, 3, 0, 0, 0], [4, 5, 3, 0, 0]])
    target = torch.tensor([[2, 5, 6, 7], [2, 9, 0, 0], [2, 0, 0, 0]])
    expected = torch.tensor([[5, 6, 7, 3], [9, 3, 0, 0], [3, 0, 0, 0]])
    model = make_model(scheme, dropout=0.0).train()
    rows: list[int] = []
    for layer in (model.encoder[0], model.decoder[0]):
        layer.feed_forward.register_forward_pre_hook(
            lambda _, args: rows.append(args[0][..., 0].numel())
        )
    found = []
    for packs in (True, False):
        model.packs = packs
        model.zero_grad()
        torch.manual_seed(1)  # of shifted and randomized positions
        loss = label_smoothed_loss(model, source, target, expected, 0.1)
        loss.smoothed.backward()
        found.append([loss.smoothed, loss.nll, *(x.grad for x in model.parameters())])
    assert rows == [10, 7, 15, 12]
    for packed, padded in zip(*found, strict=True):
        close(packed, padded)


def test_embedding_scale_and_dropout_do_not_depend_on_the_scheme(scheme, make_model, sentences):
    plain = make_model(Scheme(scheme.position_ids), dropout=0.25).train()
    model = make_model(scheme, dropout=0.25).train()
    ids = sentences[1]
    for side in ("source", "target"):
        ours, theirs = getattr(model, side), getattr(plain, side)
        ours.tokens.load_state_dict(theirs.tokens.state_dict())
        torch.manual_seed(9)  # of the random positions, too, which are drawn first
        expected, _ = theirs(ids)
        torch.manual_seed(9)
        got, pos = ours(ids)
        added = ours.position.embed(torch.zeros_like(got), pos)
        kept = expected != 0
        assert 0.7 < kept.double().mean() < 0.8
        close(got, (expected + added / 0.75) * kept)
    close(expected[kept], (4 * plain.target.tokens(ids) / 0.75)[kept])  # sqrt(D) = 4


def test_dropout_draws_do_not_depend_on_the_kind(scheme, make_model, sentences):
    states = []
    for each in (Scheme(scheme.position_ids), scheme):  # random positions are drawn between them
        model = make_model(each, dropout=0.1, attention_dropout=0.1, activation_dropout=0.1).train()
        torch.manual_seed(9)
        model(*sentences)
        states.append(torch.get_rng_state())
    assert torch.equal(*states)


def test_gradients_do_not_depend_on_how_attention_is_computed(
    scheme, make_model, sentences, backend
):
    model = make_model(scheme, encoder_layers=1, dropout=0.0).train()
    source, target = sentences

    def gradients():
        model.zero_grad()
        torch.manual_seed(5)
        model.project(model(source, target)).square().sum().backward()
        return [p.grad for p in model.parameters() if p.grad is not None]

    found = gradients()
    assert backend.calls
    backend.stop()
    for got, expected in zip(found, gradients(), strict=True):
        torch.testing.assert_close(got, expected, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_search_forced_scoring_and_full_forward_agree(scheme, make_model, sentences):
    model = make_model(SCHEMES[scheme], encoder_layers=1, decoder_layers=1)
    source = sentences[0]
    found = [
        best for [best] in beam_search(model.start(source, 3), torch.tensor([9, 14, 6]), beam=3)
    ]
    rows = [source[row, : length - 1].tolist() for row, length in enumerate((9, 6, 2))]
    scores = score_references(model, make_batch(rows, [best.tokens for best in found])).sum(dim=1)
    for row, best, score in zip(rows, found, scores, strict=True):
        hidden = model(torch.tensor([[*row, 3]]), torch.tensor([[2, *best.tokens]]))
        log_probs = model.project(hidden)[0].log_softmax(-1)
        alone = float(log_probs[range(len(best.tokens) + 1), [*best.tokens, 3]].sum().detach())
        # Log-probabilities are float32, whatever the model computes in.
        assert [best.log_prob, float(score)] == pytest.approx([alone] * 2, abs=1e-5)
