"""`translate`, and `score` with a model, as the command line runs them; the model was never
trained."""

from __future__ import annotations

import gzip
import math
import os
import shlex
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from shapeshift.config import parse_config
from shapeshift.data.config import SubwordsConfig
from shapeshift.data.subwords import Subwords
from shapeshift.lab.run import AVERAGE, Run
from shapeshift.model import build

from .running import process, shapeshift

MODEL = {"dim": 16, "num_heads": 2, "ff_dim": 16, "encoder_layers": 1, "decoder_layers": 1}
LINES = [
    "ab cd",
    "",
    "fe. dc ba, ab cd ef. a",
    "   ",
    "abc\r",
    "</s> a <sep>",
    "e\u2028f\x85\u200b",
]
TEXT = "".join(line + "\n" for line in LINES)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("project") / "run"
    words = [f"{a}{b} {b}{c}. {c}, {a}" for a in "abcdef" for b in "abcdef" for c in "abcdef"]
    config = parse_config(
        {
            "data": {"corpus": {"corpus": "grammar"}},
            "model": MODEL,
            "position": {"parts": [{"kind": "learned", "num_positions": 40}]},
            "training": {"precision": "fp32", "device": "cpu"},
            "decoding": {"beam": 2, "max_length_a": 0.5, "max_length_b": 3},
        }
    )
    Run.create(folder, config)
    subwords = Subwords.train(
        lambda: ((word, word) for word in words), SubwordsConfig(vocab_size=40), folder / "subwords"
    )
    torch.manual_seed(0)
    size = subwords.source_size
    model = build(config.model, config.position.scheme, size, size)
    save_file({name: p.detach() for name, p in model.named_parameters()}, folder / AVERAGE)
    (folder.parent / "text").write_text(TEXT, encoding="utf-8")
    (folder.parent / "bad").write_bytes(b"ab\n\ncd \xff\nef\n")
    return folder


def test_lines_come_out_as_they_went_in_and_cuts_are_counted(run: Path) -> None:
    status, out, err = shapeshift(run.parent, "translate", "run", "text", "-")
    assert status == 0
    assert out.count("\n") == len(LINES)
    found = out.split("\n")
    assert (found[1], found[3]) == ("", "")
    assert "text: " in err
    assert f"of {len(LINES)} translations reach the length limit" in err
    assert "<stdin>" not in err


@contextmanager
def fed_pipe(path: Path, data: bytes) -> Iterator[Path]:
    """A named pipe that yields these bytes once."""
    os.mkfifo(path)
    feeder = threading.Thread(target=path.write_bytes, args=(data,), daemon=True)
    feeder.start()
    yield path
    feeder.join(10)
    path.unlink()


def test_a_pipe_is_translated_like_a_file(run: Path) -> None:
    expected = shapeshift(run.parent, "translate", "run", "text")[1]
    with fed_pipe(run.parent / "pipe", TEXT.encode()):
        assert shapeshift(run.parent, "translate", "run", "pipe")[:2] == (0, expected)
    with fed_pipe(run.parent / "pipe.gz", gzip.compress(TEXT.encode())):
        assert shapeshift(run.parent, "translate", "run", "pipe.gz")[:2] == (0, expected)


@pytest.mark.parametrize("piped", ["text", "ref", "src"])
def test_a_pipe_is_scored_like_a_file(run: Path, piped: str) -> None:
    (run.parent / "ref").write_text(TEXT, encoding="utf-8")
    (run.parent / "src").write_text(TEXT, encoding="utf-8")
    expected = shapeshift(run.parent, "score", "text", "ref", "--source", "src")
    assert expected[0] == 0
    names = [{piped: "pipe"}.get(name, name) for name in ("text", "ref", "src")]
    with fed_pipe(run.parent / "pipe", TEXT.encode()):
        found = shapeshift(run.parent, "score", *names[:2], "--source", names[2])
    assert found == expected


def test_notices_stay_out_of_the_output_where_standard_error_is_closed(run: Path) -> None:
    expected = shapeshift(run.parent, "translate", "run", "text")[1]
    command = f"{shlex.quote(sys.executable)} -m shapeshift.cli translate run text > closed 2>&-"
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    subprocess.run(["bash", "-c", command], cwd=run.parent, env=environment, check=True)
    assert (run.parent / "closed").read_bytes() == expected.encode()


def test_a_bad_line_leaves_no_output_file(run: Path) -> None:
    status, out, err = process(run.parent, "translate", "run", "text", "bad", "-o", "out")
    reason = "not UTF-8: byte 0xff at byte 4 of the line; convert the text to UTF-8"
    assert (status, out) == (1, "")
    assert err.split("\n")[-2] == f"shapeshift: error: bad:3: {reason}"
    assert not list(run.parent.glob("*out*"))


@pytest.mark.parametrize("name", ["bad", "-"])
def test_the_lines_before_a_bad_one_are_answered(run: Path, name: str) -> None:
    bad = (run.parent / "bad").read_bytes()
    status, out, err = shapeshift(run.parent, "translate", "run", name, stdin=bad)
    assert (status, out.count("\n")) == (1, 2)
    assert out.endswith("\n\n")
    title = "<stdin>" if name == "-" else name
    assert err.split("\n")[-2].startswith(f"shapeshift: error: {title}:3: not UTF-8")


def test_a_missing_file_is_reported_before_the_others_are_translated(run: Path) -> None:
    status, out, err = shapeshift(run.parent, "translate", "run", "text", "missing")
    assert (status, out) == (1, "")
    assert "missing: no such file" in err


def test_long_lines_are_named_with_their_numbers(run: Path) -> None:
    options = ("--max-source-length", "9", "--on-long")
    status, out, err = shapeshift(
        run.parent, "translate", "run", "text", *options, "split", "-o", "split"
    )
    assert (status, out) == (0, "")
    assert (run.parent / "split").read_bytes().count(b"\n") == len(LINES)
    assert "text:3: " in err
    assert "over 9: split (" in err
    assert "lines were too long and split" in err

    # Without a limit of the user's, the 39 subwords that the table leaves room for are one.
    status, out, err = shapeshift(
        run.parent, "translate", "run", stdin=b"ab\n" + b"ab " * 50 + b"\n"
    )
    assert (status, out.count("\n")) == (1, 1)
    assert "<stdin>:2: " in err
    assert "expected at most 39 (the model has no positions for more)" in err


def test_batch_invariant_output_is_the_same_bytes_in_any_batches(run: Path) -> None:
    options = ("--n-best", "2", "--batch-invariant")
    outputs = set()
    for settings in ([], ["--set", "decoding.max_sentences=1", "--set", "decoding.buffer_size=2"]):
        status, out, _ = shapeshift(run.parent, "translate", "run", "text", *options, *settings)
        assert status == 0
        outputs.add(out)
    assert len(outputs) == 1


def test_score_adds_what_a_model_thinks(run: Path) -> None:
    (run.parent / "mine").write_text("".join(x + "\n" for x in reversed(LINES)), encoding="utf-8")
    status, out, err = shapeshift(
        run.parent, "score", "mine", "text", "--source", "text", "--metric", "bleu",
        "--run", "run", "--log-probs", "log_probs", "--batch-invariant",
    )  # fmt: skip
    assert (status, err) == (0, "")
    values = [float(line) for line in (run.parent / "log_probs").read_text().split()]
    assert len(values) == len(LINES)
    assert max(values) <= 0
    last = out.split("\n")[-2]
    mean, num_tokens = last.split()[2], int(last.split("over ")[1].split()[0])
    assert float(mean) == pytest.approx(math.fsum(values) / num_tokens, abs=1e-6)


def test_a_way_with_long_lines_that_there_is_not_is_wrong_usage(run: Path) -> None:
    status, out, err = shapeshift(run.parent, "translate", "run", "text", "--on-long", "cut")
    assert (status, out) == (2, "")
    assert "--on-long" in err


@pytest.mark.parametrize("setting", ["model.dropout=0.3", "position=rope", "training.seed=3"])
def test_a_setting_without_effect_on_a_trained_model_is_wrong_usage(
    run: Path, setting: str
) -> None:
    key = setting.partition("=")[0]
    for command in (
        ["translate", "run"],
        ["score", "text", "text", "--source", "text", "--run", "run"],
    ):
        status, out, err = shapeshift(run.parent, *command, "--set", setting)
        assert (status, out) == (2, "")
        assert f"{key} has no effect on a trained model" in " ".join(err.split())
