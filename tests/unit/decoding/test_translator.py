"""From lines to lines, with a model that copies its source and characters for subwords."""

import pytest
import torch
from torch import Tensor, nn

from shapeshift._system.errors import ShapeshiftError
from shapeshift.data.subwords import join_ids, split_parts
from shapeshift.decoding.config import MAX_SOURCE_LENGTH, AveragePenalty, DecodingConfig, NoPenalty
from shapeshift.decoding.running import Runner
from shapeshift.decoding.translator import TranslatedLine, Translation, Translator

PAD, EOS, SEP = 0, 3, 4
ALPHABET = "abcdefghijklmnopqrstuvwxyz .\t\n"
FIRST = 5


class Characters:
    """One id for each character; what is not in the alphabet has none."""

    def encode_source(self, texts, *, joined=False):
        if joined:
            return [join_ids(self.encode_source(split_parts(text))) for text in texts]
        return [[FIRST + ALPHABET.index(c) for c in text if c in ALPHABET] for text in texts]

    def decode_target(self, ids):
        return "".join("|" if i == SEP else ALPHABET[i - FIRST] for i in ids)


class Copier(nn.Module):
    """Copies the source; the right token has all but a little of the probability."""

    def __init__(self, *, eos_logit: float = 0.0) -> None:
        super().__init__()
        self.dropout = nn.Dropout()
        self.eos_logit = eos_logit
        self.shapes: list[tuple[int, int]] = []
        self.modes: list[bool] = []

    def start(self, source, beam):
        assert ((source == EOS).sum(dim=1) == 1).all()
        assert ((source == PAD).long().diff(dim=1) >= 0).all(), "padding is not on the right"
        self.shapes.append((source.size(0), source.size(1)))
        self.modes.append(self.dropout.training)
        return CopierState(source.repeat_interleave(beam, dim=0), self.eos_logit)


class CopierState:
    def __init__(self, source: Tensor, eos_logit: float):
        self.source, self.eos_logit, self.length = source, eos_logit, 0

    def step(self, tokens):
        logits = torch.arange(FIRST + len(ALPHABET)).float().div(-100).repeat(len(self.source), 1)
        column = min(self.length, self.source.size(1) - 1)
        wanted = self.source[:, column]
        wanted = torch.where(wanted == PAD, EOS, wanted)
        logits[:, EOS] = self.eos_logit
        logits.scatter_(1, wanted[:, None], 9.0)
        self.length += 1
        return logits

    def begin(self, tokens):
        return self.step(tokens)[:: len(self.source) // len(tokens)]

    def reorder(self, rows):
        self.source = self.source[rows]


def translator(model: Copier | None = None, **settings: object) -> Translator:
    config = DecodingConfig.model_validate({"beam": 3, **settings})
    return Translator(Runner(model or Copier(), config), Characters())


def candidates(lines: list[str], n_best: int, **settings: object) -> list[list[Translation]]:
    return [line.candidates for line in translator(**settings).translate_lines(lines, n_best)]


@pytest.mark.parametrize("beam", [1, 3])
@pytest.mark.parametrize(
    "settings", [{}, {"buffer_size": 1}, {"buffer_size": 3}, {"max_sentences": 2}]
)
def test_one_line_out_for_each_line_in(beam, settings):
    lines = ["the cat.", "", "a", "   ", "a much longer line than all others.", "\t", "zz", "q r s"]
    expected = ["" if line.isspace() else line for line in lines]
    lines += ["öü", "日", "ab\n", "\n", "a\nb"]  # nothing is left of two after encoding
    found = translator(beam=beam, **settings).translate(lines)
    assert list(found) == [*expected, "", "", "ab", "", "a b"]


def test_batches_are_sorted_and_keep_to_the_budget():
    model = Copier()
    lines = ["a" * n for n in (3, 9, 1, 7, 30, 5, 2, 1, 8, 1, 4, 6)]
    found = list(translator(model, max_tokens=20, max_sentences=4).translate(lines))
    assert found == lines
    assert model.shapes[0] == (1, 31)  # over the budget by itself
    assert all(rows * width <= 20 for rows, width in model.shapes[1:])
    rows, widths = zip(*model.shapes, strict=True)
    assert [*widths] == sorted(widths, reverse=True)
    assert (max(rows), sum(rows)) == (4, len(lines))


def test_a_window_is_answered_before_the_next_is_read():
    read: list[str] = []

    def lines():
        for line in ("a", "b", "c", "d", "e"):
            read.append(line)
            yield line

    answers = translator(buffer_size=2).translate(lines())
    assert not read
    assert next(answers) == "a"
    assert read == ["a", "b"]
    read.clear()
    for answer in translator(buffer_size=2).translate_lines(lines(), stream=True):
        assert read.pop() == answer.candidates[0].text
        assert not read


def test_n_best_is_sorted_and_scored():
    found = candidates(["abc", " "], 3, length_penalty=AveragePenalty())
    assert len(found[0]) == 3
    assert found[0][0].text == "abc"
    scores = [translation.score for translation in found[0]]
    assert scores == sorted(set(scores), reverse=True)
    assert found[0][0].score == pytest.approx(found[0][0].log_prob / 4)
    assert [(t.text, t.log_prob, t.score) for t in found[1]] == [("", 0.0, 0.0)]
    for n_best in (0, 4):
        with pytest.raises(ShapeshiftError, match=r"expected 1 to decoding\.beam=3"):
            candidates(["abc"], n_best)


def test_length_limits_go_by_the_own_source():
    settings = {"max_length_a": 0.5, "max_length_b": 1, "length_penalty": NoPenalty()}
    lines = ["abcdefgh", "abcd", "ab"]
    model = Copier(eos_logit=-90.0)
    # At most 5, 3 and 2 tokens with the end, which has no chance before the limit.
    assert list(translator(model, **settings).translate(lines)) == ["abcd", "ab", "a"]
    assert len(model.shapes) == 1


def test_joined_lines_have_separators_and_translations_are_detokenised():
    runner = translator().runner
    joined = Translator(runner, Characters(), joined=True, detokenize=str.upper)
    assert list(joined.translate(["a <sep> b.", "c", ""])) == ["A|B.", "C", ""]
    assert list(translator().translate(["a <sep> b."])) == ["a sep b."]


def test_the_model_is_evaluated_whatever_its_mode():
    model = Copier().train()
    for _ in translator(model, buffer_size=1).translate(["a", "b"]):
        assert model.training
        assert torch.is_grad_enabled()
    assert model.modes == [False, False]


LONG = ["ab", "abc def. gh ij", "c", "abcdefghij", ""]


def long_lines(on_long: str, limit: int = 8, **settings: object) -> list[TranslatedLine]:
    translate = translator(max_source_length=limit, on_long=on_long, **settings)
    return list(translate.translate_lines(LONG, name="text"))


@pytest.mark.parametrize("settings", [{}, {"buffer_size": 1}, {"buffer_size": 2}])
def test_long_lines_are_skipped_or_split_and_say_so(settings):
    skipped = long_lines("skip", **settings)
    assert [line.candidates[0].text for line in skipped] == ["ab", "", "c", "", ""]
    assert [line.num_pieces for line in skipped] == [1, 0, 1, 0, 1]
    split = long_lines("split", **settings)
    assert [line.candidates[0].text for line in split] == LONG
    assert [line.num_pieces for line in split] == [1, 2, 1, 2, 1]
    assert [line.exceeded for line in split] == [None, 8, None, 8, None]
    assert [line.num_subwords for line in split] == [*map(len, LONG)]


@pytest.mark.parametrize("buffer_size", [1, 2, 9])
def test_all_lines_before_a_faulty_one_are_answered(buffer_size):
    translate = translator(max_source_length=8, buffer_size=buffer_size)
    lines = translate.translate_lines(LONG, name="text")
    assert next(lines).candidates[0].text == "ab"
    with pytest.raises(ShapeshiftError, match=r"^text:2: 14 subwords, expected at most 8"):
        next(lines)

    def broken():
        yield from ("a", "b", "c")
        raise ShapeshiftError("not text", path="text", line=4)

    lines = translate.translate_lines(broken())
    assert [next(lines).candidates[0].text for _ in range(3)] == ["a", "b", "c"]
    with pytest.raises(ShapeshiftError, match=r"^text:4: not text"):
        next(lines)


def counting_encoder(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list that gets the length of each text that is encoded."""
    sizes: list[int] = []
    encode = Characters.encode_source

    def counted(self, texts, **options):
        sizes.extend(map(len, texts))
        return encode(self, texts, **options)

    monkeypatch.setattr(Characters, "encode_source", counted)
    return sizes


def test_a_line_has_a_limit_by_default():
    assert translator().limit == MAX_SOURCE_LENGTH == 4_096
    assert translator(max_source_length=9_000).limit == 9_000
    translate = translator(on_long="skip", max_length_a=0.0, max_length_b=2)
    lines = ["a" * 4_097, "ab", "a" * 4_096]
    exceeded = [line.exceeded for line in translate.translate_lines(lines)]
    assert exceeded == [4_096, None, None]
    assert [max(shape) for shape in translate.runner.model.shapes] == [4_097, 3]
    with pytest.raises(ShapeshiftError, match=r"^t:1: 4,097 subwords, .* 4,096 \(decoding\.max_so"):
        next(translator().translate_lines(lines, name="t"))


@pytest.mark.parametrize("on_long", ["error", "skip", "split"])
def test_a_huge_line_is_never_encoded_whole(on_long, monkeypatch):
    sizes = counting_encoder(monkeypatch)
    lines = ["ab", "abc" * 100, " " * 600 + "abc", "c"]  # over 64 characters for each subword
    settings = {"max_source_length": 4, "on_long": on_long}
    found = translator(**settings).translate_lines(lines, name="t")
    assert next(found).candidates[0].text == "ab"
    if on_long == "error":
        with pytest.raises(ShapeshiftError, match=r"^t:2: over 256 characters, .* 4 subwords"):
            next(found)
        return
    results = [*found]
    assert max(size for size in sizes if size != 603) <= 256
    assert (results[0].num_subwords, results[0].exceeded) == (None, 4)
    assert results[-1].candidates[0].text == "c"
    text = results[0].candidates[0].text
    assert text == ("" if on_long == "skip" else lines[1])
    assert (results[0].num_pieces == 0) == (on_long == "skip")


def test_candidates_of_a_split_line_join_those_of_its_pieces():
    config = {"max_source_length": 3, "on_long": "split", "length_penalty": NoPenalty()}
    pieces = candidates(["ab", "cd"], 2, **config)
    [line] = candidates(["ab cd"], 2, **config)
    for rank in range(2):
        parts = [piece[rank] for piece in pieces]
        assert line[rank].text == " ".join(part.text for part in parts if part.text)
        assert line[rank].log_prob == pytest.approx(sum(part.log_prob for part in parts))


def test_a_translation_as_long_as_it_may_be_is_marked():
    settings = {"max_length_a": 0.0, "max_length_b": 4, "beam": 1}
    found = [best for [best] in candidates(["ab", "abcde", ""], 1, **settings)]
    assert [best.text for best in found] == ["ab", "abc", ""]
    assert [best.at_limit for best in found] == [False, True, False]


def test_memory_that_runs_out_is_reported_with_the_line():
    class Hungry(Copier):
        def start(self, source, beam):
            if source.size(1) > 5:
                torch.empty(1 << 60)
            return super().start(source, beam)

    lines = translator(Hungry(), max_tokens=1).translate_lines(["ab", "abcdefgh", "c"], name="text")
    with pytest.raises(ShapeshiftError, match=r"^not enough memory"):
        list(lines)


@pytest.mark.parametrize("beam", [1, 3])
def test_batch_invariant_work_has_shapes_that_depend_on_one_line(beam):
    model = Copier()
    lines = ["abcdefg", "ab", "abc", "", "a" * 300, "b"]
    work = translator(model, beam=beam, batch_invariant=True)
    assert list(work.translate(lines)) == lines
    # A probe, then 300 letters with their end, 7 with theirs, and all that have 4 at most.
    assert model.shapes == [(16, 20), (13, 304), (16, 8), (16, 4)]
