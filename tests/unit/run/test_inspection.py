"""What `shapeshift inspect` shows of a run: the numbers are the model's own."""

import re

import numpy as np
import pytest
import torch

from shapeshift._system.errors import ShapeshiftError
from shapeshift.data.batching import make_batch
from shapeshift.run.inspection import by_distance, inspect_run
from shapeshift.study.report.inspection import inspection_page

SENTENCE = "abc de f ba"


@pytest.mark.parametrize("position", ["ape", "rpe", "rope", "cross-pe"])
def test_every_layer_and_head_is_there_and_gives_all_its_attention(make_run, position):
    run, _ = make_run(f"position={position}", "model.encoder_layers=2")
    inspection = inspect_run(run, SENTENCE)
    S, T = len(inspection.source), len(inspection.target)
    assert {name: probs.shape for name, probs in inspection.attention.items()} == {
        "encoder self-attention": (2, 2, S, S),
        "decoder self-attention": (1, 2, T, T),
        "cross-attention": (1, 2, T, S),
    }
    for probs in inspection.attention.values():
        np.testing.assert_allclose(probs.sum(-1), 1, atol=1e-5)
    assert np.all(np.triu(inspection.attention["decoder self-attention"][0, 0], 1) == 0)
    assert inspection.translation == run.translate([SENTENCE])[0]
    assert len(inspection.probabilities) == len(inspection.output) == T
    assert inspection.source[-1] == inspection.output[-1] == "</s>"
    assert "".join(inspection.source[:-1]).replace("▁", " ").strip() == SENTENCE
    assert (inspection.similarity.min() > 1 - 1e-5) == (position in ("rpe", "rope"))


def test_attention_is_that_of_the_formula(make_run):
    run, _ = make_run("position=ape")
    inspection = inspect_run(run, SENTENCE)
    model, subwords = run.model().double(), run.subwords()
    source = make_batch(subwords.encode_source([SENTENCE]), [[]]).source
    attention = model.encoder[0].attention
    with torch.no_grad():
        x, _ = model.source(source)
        x = model.encoder[0].around_attention.norm(x)[0]
        q, k, _ = (x @ attention.in_weight.T + attention.in_bias).chunk(3, dim=-1)
        for head in range(2):
            of = slice(16 * head, 16 * head + 16)
            expected = (q[:, of] @ k[:, of].T / 4).softmax(-1)
            got = inspection.attention["encoder self-attention"][0, head]
            np.testing.assert_allclose(got, expected.numpy(), atol=1e-5)


def test_the_mean_by_distance_is_over_the_pairs_of_that_distance():
    distances, means = by_distance(np.arange(18, dtype=np.float32).reshape(2, 3, 3))
    assert list(distances) == [-2, -1, 0, 1, 2]
    assert means.tolist() == [[6, 5, 4, 3, 2], [15, 14, 13, 12, 11]]


@pytest.mark.parametrize(
    ("sentence", "said"),
    [
        ("  ", "expected one sentence, in UTF-8, got '  '"),
        ("a\nb", "expected one sentence"),
        ("caf\udce9", "expected one sentence, in UTF-8"),
        ("abc " * 40, "subwords, and the model of .* takes 19; give a shorter one"),
    ],
)
def test_what_is_no_sentence_for_this_model_is_refused(make_run, sentence, said):
    run, _ = make_run("position=learned", "position.parts.0.num_positions=20")
    with pytest.raises(ShapeshiftError, match=said):
        inspect_run(run, sentence)
    offsets = inspect_run(run, "a").offsets
    assert 0 in offsets
    assert max(offsets) < 20


def test_the_page_has_a_picture_for_each_head_and_loads_nothing(make_run):
    runs = [inspect_run(make_run(f"position={name}")[0], SENTENCE) for name in ("ape", "rpe")]
    sentence = "<script>alert(1)</script>"
    page = inspection_page(sentence, runs)
    assert "rpe: shaw at self (max_distance=16)" in page
    assert "1 + 1 layers, width 32, 2 heads" in page
    assert page.count("average of a training of 3 updates") == 2
    assert page.count('class="thumb"') == 2 * 3 * 2  # runs, kinds, heads
    identifiers = re.findall(r' id="([^"]+)"', page)
    assert len(set(identifiers)) == len(identifiers)
    assert set(re.findall(r'popovertarget="([^"]+)"', page)) <= set(identifiers)
    assert "<script" not in page
    assert re.findall(r'(?:src|href)="(?!data:|#)[^"]*"', page) == []
    assert "does not depend on where the sentence begins" in page
    assert "checkpoint after 3 updates" in inspection_page(
        "a", [inspect_run(runs[0].run, "a", "3")]
    )


def test_charts_by_distance_of_the_decoder_end_at_the_query(make_run):
    page = inspection_page(SENTENCE, [inspect_run(make_run("position=rpe")[0], SENTENCE)])
    for kind, origin, end in (
        ("Encoder", "50.0", "to the right"),
        ("Decoder", "100", "the query itself"),
    ):
        part = page.partition(f"<h3>{kind} self-attention</h3>")[2].partition("<h3>")[0]
        assert f'<line x1="{origin}"' in part
        assert end in part.partition('class="scale-note"')[2]
        lines = re.findall(r'points="([^"]+)"', part)
        points = [[tuple(map(float, xy.split(","))) for xy in line.split()] for line in lines]
        assert {(line[0][0], line[-1][0]) for line in points} == {(0, 100)}
    # Of the decoder nothing is empty: each distance has some attention.
    assert all(y < 30 for line in points for _, y in line)


def test_a_line_that_is_no_text_is_named(make_run):
    run, _ = make_run("position=ape")
    with pytest.raises(ShapeshiftError, match=r"<lines>:2: not UTF-8 text: 'caf\\udce9'"):
        run.translate(["abc", "caf\udce9"])
