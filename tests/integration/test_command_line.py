"""From text to scores through the real command line, with the power cut in the middle."""

import os
import random
import signal
import subprocess
import sys
import time

import pytest
import yaml

from shapeshift import load_run
from shapeshift.evaluation.scores import Scores
from shapeshift.training.log import read_log

MAX_UPDATES = 120
SIZES = {"train": 150, "valid": 10, "test": 17}
CONFIG = {
    "data": {
        "corpus": {
            "corpus": "files",
            "root": "text",
            "source": "low",
            "target": "up",
            **{split: [split] for split in SIZES},
        },
        "subwords": {"vocab_size": 40},
    },
    "model": {
        "dim": 32, "num_heads": 2, "ff_dim": 64, "encoder_layers": 1, "decoder_layers": 1
    },
    "position": "shape",
    "training": {
        "max_updates": MAX_UPDATES,
        "batch": {"max_sentences": 8},
        "accumulation": 2,
        "schedule": {"name": "inverse_sqrt", "peak": 0.01, "warmup_updates": 20},
        "precision": "fp32",
        "device": "cpu",
        "log_every": 10,
        "checkpoint_every": 20,
        "keep_checkpoints": 3,
        "average_checkpoints": 3,
    },
    "evaluation": {"length_buckets": [5, 10]},
}  # fmt: skip


def command(*arguments):
    return [sys.executable, "-m", "shapeshift.cli", *map(str, arguments)]


def environment(hash_seed="0"):
    return os.environ | {"PYTHONHASHSEED": hash_seed, "OMP_NUM_THREADS": "1"}


def shapeshift(folder, *arguments, status=0, **options):
    done = subprocess.run(
        command(*arguments),
        cwd=folder,
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        **options,
    )
    assert done.returncode == status, done.stderr
    return done


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Text, a configuration, prepared data."""
    folder = tmp_path_factory.mktemp("project")
    (folder / "text").mkdir()
    rng = random.Random(4)
    words = ["".join(rng.choices("abcdef", k=rng.randint(1, 3))) for _ in range(20)]
    for split, size in SIZES.items():
        lines = [" ".join(rng.choices(words, k=rng.randint(1, 6))) for _ in range(size)]
        for language, fold in (("low", str.lower), ("up", str.upper)):
            path = folder / "text" / f"{split}.{language}"
            path.write_text("".join(fold(line) + "\n" for line in lines), encoding="utf-8")
    (folder / "toy.yaml").write_text(yaml.safe_dump(CONFIG), encoding="utf-8")
    done = shapeshift(folder, "prepare", "toy.yaml")
    prepared = folder / done.stdout.split("\n")[-2]
    assert (prepared / "prepared.json").is_file()
    return folder


def start(folder, run, hash_seed):
    return subprocess.Popen(
        command("train", "toy.yaml", "--run", run),
        cwd=folder,
        env=environment(hash_seed),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def kill_after_a_checkpoint(process, run):
    """Send SIGKILL as soon as there is a checkpoint."""
    deadline = time.monotonic() + 60
    while not list((run / "checkpoints").glob("update-*")):
        assert process.poll() is None, process.communicate()[1]
        assert time.monotonic() < deadline
        time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert process.returncode == -signal.SIGKILL


@pytest.fixture(scope="module")
def runs(folder):
    """A run that was killed and started again, and one that was left alone.

    Each process has another hash seed: no order of a set may play a part.
    """
    before = {x.name for x in (folder / "prepared").iterdir()}
    alone = start(folder, "alone", "1")
    killed = start(folder, "killed", "2")
    kill_after_a_checkpoint(killed, folder / "killed")
    assert not (folder / "killed" / "average.safetensors").exists()
    again = start(folder, "killed", "3")
    outputs = {"alone": alone.communicate(timeout=120), "killed": again.communicate(timeout=120)}
    assert (alone.returncode, again.returncode) == (0, 0), outputs
    assert {x.name for x in (folder / "prepared").iterdir()} == before
    return outputs


def test_killed_and_started_again_is_the_same_run(folder, runs):
    def files(pattern):
        found = {}
        for run in ("alone", "killed"):
            paths = sorted(x for x in (folder / run).glob(pattern) if x.is_file())
            found[run] = {x.relative_to(folder / run): x.read_bytes() for x in paths}
        assert found["alone"]
        return found

    for pattern in ("checkpoints/*/*.safetensors", "average.safetensors", "results/*", "data.json"):
        found = files(pattern)
        assert found["alone"] == found["killed"], pattern
    assert {x.parent.name for x in (folder / "killed").glob("checkpoints/*/*")} >= {
        f"update-{update:08d}" for update in (80, 100, 120)
    }
    logs = {run: read_log(folder / run / "log.jsonl") for run in ("alone", "killed")}
    for log in logs.values():
        for line in log:
            line.pop("tokens_per_s", None)
            line.pop("elapsed_s")
    assert logs["alone"] == logs["killed"]
    assert [x["update"] for x in logs["killed"] if "loss" in x] == list(range(10, 121, 10))


def test_training_learns_and_shows_the_scores(folder, runs):
    losses = [x["loss"] for x in read_log(folder / "alone" / "log.jsonl") if "loss" in x]
    assert losses[-1] < 0.8 * losses[0]
    scores = Scores.load(folder / "alone" / "results" / "test.average.json")
    assert scores.num_segments == SIZES["test"]
    stdout, stderr = runs["alone"]
    assert f"{scores.find('BLEU').value:.2f}" in stdout
    assert f"update {MAX_UPDATES} · valid loss" in stderr


LINES = ["abc de f", "", "fed", "   ", "zzz", "ünknown 丂"]


def test_translate_keeps_lines_and_score_reads_them(folder, runs):
    done = shapeshift(folder, "translate", "killed", input="".join(x + "\n" for x in LINES))
    lines = done.stdout.split("\n")
    assert lines.pop() == ""
    assert len(lines) == len(LINES)
    assert lines[1] == lines[3] == ""
    assert any(lines)
    run = load_run(folder / "killed")
    assert run.translate(LINES) == lines
    with pytest.raises(TypeError, match="a list of lines"):
        run.translate("abc")

    shapeshift(folder, "translate", "killed", "text/test.low", "-o", "hypotheses.txt")
    expected = (folder / "killed" / "results" / "test.average.txt").read_bytes()
    assert (folder / "hypotheses.txt").read_bytes() == expected

    scored = shapeshift(folder, "score", "hypotheses.txt", "text/test.up", "--json", "scores.json")
    found = Scores.load(folder / "scores.json").find("BLEU")
    inside = Scores.load(folder / "killed" / "results" / "test.average.json").find("BLEU")
    assert (found.value, found.signature) == (inside.value, inside.signature)
    assert scored.stdout.startswith(f"BLEU {found.value:.2f} (")


def test_translate_takes_the_checkpoint_and_settings_asked_for(folder, runs):
    done = shapeshift(
        folder, "translate", "alone", "--checkpoint", "last", "--set", "decoding.beam=3",
        "--n-best", 3, input="abc\n\nde\n",
    )  # fmt: skip
    rows = [line.split("\t") for line in done.stdout.split("\n")[:-1]]
    assert [int(number) for number, *_ in rows] == [1, 1, 1, 2, 3, 3, 3]
    scores = [float(score) for _, score, _ in rows]
    assert scores[:3] == sorted(scores[:3], reverse=True)
    assert rows[3][1:] == ["0.0000", ""]


def test_sigterm_leaves_no_partial_file(folder, runs):
    process = subprocess.Popen(
        command("translate", "killed", "-o", "stopped.txt"),
        cwd=folder,
        env=environment(),
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    deadline = time.monotonic() + 60
    while not list(folder.glob(".partial-*")):
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.01)
    process.terminate()
    _, stderr = process.communicate(timeout=60)
    assert (process.returncode, stderr) == (143, "stopped by SIGTERM\n")
    assert list(folder.glob("*stopped.txt")) == list(folder.glob(".partial-*")) == []
