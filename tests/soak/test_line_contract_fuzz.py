"""The line contract on fuzzed files: one line out for each line in, or one error that names the
line and no output.

A few hundred files in the ordinary suite, 10,000 (or `FUZZED_FILES`) in the soak test. The commands
run in this process, with a tiny model that was never trained.
"""

from __future__ import annotations

import contextlib
import io
import os
import sys
import tempfile
from functools import cache
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from shapeshift._system.errors import ShapeshiftError
from shapeshift.cli.translate import translate
from shapeshift.config import Config
from shapeshift.data.config import SubwordsConfig
from shapeshift.data.filter import MAX_CHARACTERS
from shapeshift.data.subwords import Subwords
from shapeshift.decoding.config import DecodingConfig
from shapeshift.decoding.running import Runner
from shapeshift.decoding.translator import Translator
from shapeshift.model import ModelConfig, build
from shapeshift.positions import SCHEMES

LIMIT = 12
BOM = b"\xef\xbb\xbf"
FRAGMENTS = [
    *(text.encode() for text in ("ab", "cde fab", " ", ".", ", ", "</s>", "<sep>", " <sep> ")),
    *(text.encode() for text in ("\u2028", "\x85", "\u200b", "\u200d", "\u3000", "\r", "\x0c")),
    *(text.encode() for text in ("   \n", "\t\n", "\r\n", "\n", "\n\n")),
    *(text.encode() for text in ("ﬃ", "e\u0301", "語", "🙂")),
    b"abc def. fed cba, abcdef " * 3, b"abcdef" * 20,
    *(BOM, b"\xff", b"\xc3", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\0"),
]  # fmt: skip
NUM_BAD = 5  # the last ones are not text
texts = st.lists(st.sampled_from(FRAGMENTS), max_size=14)
harmless = st.lists(st.sampled_from(FRAGMENTS[:-NUM_BAD]), max_size=14)
files = st.one_of(texts, harmless, harmless).map(b"".join)
policies = st.sampled_from([None, "error", "split", "skip"])


@cache
def subwords() -> Subwords:
    words = [f"{a}{b} {b}{c}{a}. {c}, {a}" for a in "abcdef" for b in "abcdef" for c in "abcdef"]
    config = SubwordsConfig(vocab_size=40)
    with tempfile.TemporaryDirectory() as folder:
        return Subwords.train(lambda: ((word, word) for word in words), config, Path(folder))


@cache
def translator(max_source_length: int | None, on_long: str, invariant: bool) -> Translator:
    torch.manual_seed(0)
    shape = {"dim": 8, "num_heads": 2, "ff_dim": 8, "encoder_layers": 1, "decoder_layers": 1}
    size = subwords().source_size
    config = DecodingConfig(
        beam=1,
        max_length_a=0.1,
        max_length_b=3,
        buffer_size=4,
        max_source_length=max_source_length,
        on_long=on_long,
        batch_invariant=invariant,
    )
    model = build(ModelConfig(**shape), SCHEMES["ape"], size, size)
    return Translator(Runner(model, config), subwords())


def first_fault(data: bytes, on_long: str | None) -> tuple[list[str], int | None]:
    """Return the lines before the first one at fault, and its number."""
    raw = data.removeprefix(BOM).split(b"\n")
    lines: list[str] = []
    for number, line in enumerate(raw[:-1] if raw[-1] == b"" else raw, start=1):
        try:
            text = line.decode()
        except UnicodeDecodeError:
            return lines, number
        ends_in_cr = number == 1 and "\r" in text[:-1] and b"\n" not in data
        if "\0" in text or ends_in_cr or (on_long == "error" and is_long(text)):
            return lines, number
        lines.append(text)
    return lines, None


def is_long(text: str) -> bool:
    num_characters = len(" ".join(text.split()))  # unknown ones in a row are one subword
    if num_characters > MAX_CHARACTERS * LIMIT:
        return True
    return bool(text.strip()) and len(subwords().encode_source([text])[0]) > LIMIT


def check_lines(output: bytes, lines: list[str], on_long: str | None) -> None:
    found = output.decode().split("\n")
    assert found.pop() == ""
    assert len(found) == len(lines)
    for source, target in zip(lines, found, strict=True):
        if not source.strip() or (on_long == "skip" and is_long(source)):
            assert target == ""


@contextlib.contextmanager
def patched(data: bytes, on_long: str | None):
    """The commands read `data` from standard input and find the tiny model in any run."""
    ready = translator(LIMIT if on_long else None, on_long or "error", len(data) % 5 == 0)
    run = SimpleNamespace(translator=lambda *_, **__: ready, subwords=subwords, config=Config())
    out, err = io.TextIOWrapper(io.BytesIO()), io.StringIO()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("shapeshift.run.folder.Run", lambda *_: run)
        stdin = SimpleNamespace(buffer=io.BytesIO(data), isatty=lambda: len(data) % 2 == 0)
        patch.setattr(sys, "stdin", stdin)
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            yield out, err


def check_translate(data: bytes, on_long: str | None, folder: Path) -> None:
    lines, fault = first_fault(data, on_long)
    source, target = folder / "source", folder / "target"
    source.write_bytes(data)
    target.unlink(missing_ok=True)
    for name, output in ((str(source), target), (str(source), None), ("-", target), ("-", None)):
        with patched(data, on_long) as (out, err):
            if fault is None:
                translate(folder, [name], output)
            else:
                with pytest.raises(ShapeshiftError) as caught:
                    translate(folder, [name], output)
                title = "<stdin>" if name == "-" else name
                assert str(caught.value).startswith(f"{title}:{fault}: ")
                assert "\n" not in str(caught.value)
            out.flush()
            printed = out.buffer.getvalue()
        told = sum(": split (" in x or "left empty" in x for x in err.getvalue().split("\n"))
        if fault is not None and output:
            assert printed == b""
            assert not target.exists()
        else:
            check_lines(target.read_bytes() if output else printed, lines, on_long)
            assert told == (sum(map(is_long, lines)) if on_long else 0)
            target.unlink(missing_ok=True)
        assert sorted(x.name for x in folder.iterdir()) == ["source"]


MANY = int(os.environ.get("FUZZED_FILES", "10000"))


@pytest.mark.parametrize("num_files", [60, pytest.param(MANY, marks=pytest.mark.soak)])
def test_fuzzed_files(num_files: int, tmp_path: Path) -> None:
    @settings(
        max_examples=num_files,
        deadline=None,
        database=None,
        derandomize=True,
        suppress_health_check=list(HealthCheck),
    )
    @given(files, policies)
    def check(data: bytes, on_long: str | None) -> None:
        check_translate(data, on_long, tmp_path)

    check()


@pytest.mark.parametrize("on_long", ["error", "split", "skip"])
@pytest.mark.parametrize("word", ["ab cd. ", "語"])
def test_a_line_of_a_megabyte(word: str, on_long: str, tmp_path: Path) -> None:
    size = 30_000 if on_long == "split" else 1 << 20  # thousands of pieces are enough
    data = b"ab\n" + word.encode() * (size // len(word.encode())) + b"\nde"
    check_translate(data, on_long, tmp_path)
