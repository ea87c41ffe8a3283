"""`translate` as the command line runs it; the model was never trained."""

from __future__ import annotations

import gzip
import json
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from shapeshift.data.subwords import Subwords
from shapeshift.decoding.translator import Translator

from ..serve.untrained import LINES, write_run
from .running import shapeshift

TEXT = "".join(line + "\n" for line in LINES)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("project") / "run"
    position = {"parts": [{"kind": "learned", "num_positions": 40}]}
    decoding = {"beam": 2, "max_length_a": 0.5, "max_length_b": 3}
    write_run(folder, position, decoding=decoding)
    (folder.parent / "text").write_text(TEXT, encoding="utf-8")
    return folder


def test_translations_that_reach_the_limit_are_counted(run: Path) -> None:
    status, out, err = shapeshift(run.parent, "translate", "run", "text", "-")
    assert (status, out.count("\n")) == (0, len(LINES))
    assert f"of {len(LINES)} translations reach the length limit" in err
    assert "<stdin>" not in err


@pytest.mark.parametrize(
    "options", [(), ("--on-long", "split", "--set", "decoding.max_source_length=6")]
)
def test_json_has_what_text_has_and_each_token(run: Path, options: tuple[str, ...]) -> None:
    command = ("translate", "run", "text", "--n-best", "2", *options)
    status, text, _ = shapeshift(run.parent, *command)
    json_status, out, _ = shapeshift(run.parent, *command, "--json")
    assert status == json_status == 0
    lines = [json.loads(line) for line in out.splitlines()]
    assert [line["line"] for line in lines] == [*range(1, len(LINES) + 1)]
    assert text.splitlines() == [
        f"{line['line']}\t{each['score']:.4f}\t{each['text']}"
        for line in lines
        for each in line["candidates"]
    ]
    subwords = Subwords.load(run / "subwords")
    num_ends = set()
    for line, source in zip(lines, LINES, strict=True):
        for each in line["candidates"]:
            assert len(each["tokens"]) == len(each["token_log_probs"])
            assert sum(each["token_log_probs"]) == pytest.approx(each["log_prob"], abs=1e-4)
            assert bool(each["tokens"]) == bool(source.strip())
            num_ends.add(each["tokens"].count("</s>"))
            ids = [subwords.target_pieces(range(40)).index(piece) for piece in each["tokens"]]
            if each["tokens"].count("</s>") == 1:
                assert each["tokens"][-1] == "</s>"
                assert subwords.decode_target(ids[:-1]) == each["text"]
    assert max(num_ends) > 1 if options else num_ends == {0, 1}  # a piece of a line has its own


@contextmanager
def fed_pipe(path: Path, data: bytes) -> Iterator[Path]:
    """A named pipe that yields these bytes once."""
    os.mkfifo(path)
    feeder = threading.Thread(target=path.write_bytes, args=(data,), daemon=True)
    feeder.start()
    yield path
    feeder.join(10)
    path.unlink()


TRANSLATE, SCORE = ("translate", "run", "text"), ("score", "text", "ref", "--source", "src")


@pytest.mark.parametrize(
    ("command", "piped", "pipe"),
    [
        (TRANSLATE, "text", "pipe"),
        (TRANSLATE, "text", "pipe.gz"),
        *((SCORE, piped, "pipe") for piped in ("text", "ref", "src")),
    ],
)
def test_a_pipe_is_read_like_a_file(
    run: Path, command: tuple[str, ...], piped: str, pipe: str
) -> None:
    for name in ("ref", "src"):
        (run.parent / name).write_text(TEXT, encoding="utf-8")
    expected = shapeshift(run.parent, *command)
    assert expected[0] == 0
    data = gzip.compress(TEXT.encode()) if pipe.endswith("gz") else TEXT.encode()
    with fed_pipe(run.parent / pipe, data):
        found = shapeshift(run.parent, *(pipe if word == piped else word for word in command))
    assert found[:2] == expected[:2]


def test_long_lines_are_named_with_their_numbers(run: Path) -> None:
    options = ("--set", "decoding.max_source_length=9", "--on-long")
    status, out, err = shapeshift(
        run.parent, "translate", "run", "text", *options, "split", "-o", "split"
    )
    assert (status, out) == (0, "")
    assert (run.parent / "split").read_bytes().count(b"\n") == len(LINES)
    assert "text:3: " in err
    assert "over 9: split (" in err
    assert "lines were too long" in err

    # Without a limit of the user's, the 39 subwords that the table leaves room for are one.
    status, out, err = shapeshift(
        run.parent, "translate", "run", stdin=b"ab\n" + b"ab " * 50 + b"\n"
    )
    assert (status, out.count("\n")) == (1, 1)
    assert "<stdin>:2: " in err
    assert "expected at most 39 (the model has no positions for more)" in err


def test_options_reach_the_translator(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked, translate_lines = [], Translator.translate_lines

    def noted(self: Translator, *args: Any, stream: bool, **options: Any) -> Iterator[Any]:
        asked.append((self.runner.config, stream))
        return translate_lines(self, *args, stream=stream, **options)

    monkeypatch.setattr(Translator, "translate_lines", noted)
    options = ("--on-long", "skip", "--set", "decoding.batch_invariant=true")
    assert shapeshift(run.parent, "translate", "run", "text", *options)[0] == 0
    assert shapeshift(run.parent, "translate", "run", stdin=b"ab\n", terminal=True)[0] == 0
    (config, from_file), (default, from_terminal) = asked
    assert (config.batch_invariant, config.on_long) == (True, "skip")
    assert (default.batch_invariant, from_file, from_terminal) == (False, False, True)
