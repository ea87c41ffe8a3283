"""Damage to any file that preparing, training, translating, scoring or measuring reads: it is
reported in one sentence that names the file, or changes nothing that is read.
"""

import hashlib
import random
import shutil
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pytest

from shapeshift._system.errors import ShapeshiftError
from shapeshift.config import Config
from shapeshift.data.prepare import prepare
from shapeshift.run.folder import Run, prepared_directory
from shapeshift.run.measures import kept_lines
from shapeshift.run.record import RunFolder
from shapeshift.run.train import train
from shapeshift.training.log import read_log
from shapeshift.training.observer import Observer
from shapeshift.training.optim import build_optimizer

from ..conftest import do_work

NOT_READ = {"lock", "output.log"}
KINDS = ("bit", "byte", "cut", "longer", "empty", "missing", "folder")


def hash_of(tensor):
    return hashlib.sha256(tensor.detach().numpy().tobytes()).digest()


@dataclass(frozen=True)
class Place:
    """A corpus, its prepared data, and a run that was trained and scored on them."""

    root: Path
    config: Config

    @property
    def run(self) -> RunFolder:
        return RunFolder(self.root / "run")

    def files(self) -> list[Path]:
        """Return all files that are read. (Locks may be empty.)"""
        paths = sorted(x for x in self.root.rglob("*") if x.is_file() and x.stat().st_size)
        return [x for x in paths if x.name not in NOT_READ and "tensorboard" not in x.parts]

    def read(self) -> str:
        """Read everything as the commands do; return it as text, of tensors the hashes."""
        config, run = self.config, Run(self.run.run)
        data = prepare(config.data, prepared_directory(config.data, self.root / "prepared"))
        content = [data.report, data.subwords.fingerprint, data.text("valid"), data.text("test")]
        for store in (data.train, data.valid, data.test):
            content += [store.source_size, store.target_size]
            content += [ids.tolist() for pair in store for ids in pair]
        content += [self.run.record(measure, config) for measure in ("train", "score-test")]
        content += [kept_lines(self.run.run, "test", kind) for kind in ("average", "references")]
        model = run.model()  # the average
        content += [run.config, run.subwords().fingerprint]
        read_log(run.directory / "log.jsonl")  # a record for people: its numbers are not verified
        optimizer = build_optimizer(run.config.training.optimizer, model.parameters())
        content += map(hash_of, model.parameters())
        for update in run.checkpoints.updates():
            content.append(run.checkpoints.restore(update, model, optimizer))
            content += map(hash_of, model.parameters())
            for state in optimizer.state_dict()["state"].values():
                content += map(hash_of, state.values())
        return repr(content)

    def train(self) -> str:
        """Give the training command again, then read everything."""
        train(self.config, self.run.run, Observer(), prepared_root=self.root / "prepared")
        return self.read()


@pytest.fixture(scope="module")
def place(make_config, text, tmp_path_factory):
    root = tmp_path_factory.mktemp("corruption")
    shutil.copytree(text, root / "text")
    small = ("max_updates=4", "checkpoint_every=2", "keep_checkpoints=2", "device=cpu")
    config = make_config(
        f"data.corpus.root={root / 'text'}", "model.dim=16", "model.ff_dim=16",
        *(f"training.{setting}" for setting in small),
    )  # fmt: skip
    place = Place(root, config)
    do_work(place.run, config, ["score-test"], root / "prepared")
    return place


def damage(path: Path, kind: str, rng: random.Random) -> None:
    """Damage a file, so that it is not what it was."""
    data = bytearray(path.read_bytes())
    position = rng.randrange(len(data))
    if kind == "bit":
        data[position] ^= 1 << rng.randrange(8)
    elif kind == "byte":
        data[position] = (data[position] + rng.randrange(1, 256)) % 256
    elif kind == "longer":
        data += rng.randbytes(rng.randint(1, 20))
    else:
        del data[position if kind == "cut" else 0 :]
    path.unlink()
    if kind == "folder":
        path.mkdir()
    elif kind != "missing":
        path.write_bytes(data)


def outcome(place: Place, path: Path, clean: str) -> str:
    """Return what came of reading with a damaged file: `reported`, `harmless`, or what is wrong."""
    try:
        content = place.train() if path.name == "data.json" else place.read()
    except ShapeshiftError as error:
        message = str(error)
        named = path.name in message or "text" in path.parts  # other text, whichever file it is in
        return "reported" if named and "\n" not in message else f"unclear: {message}"
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "harmless" if content == clean else "silent"


@pytest.mark.parametrize("num_cases", [400, pytest.param(10_000, marks=pytest.mark.soak)])
def test_damage_to_any_file_is_reported_or_harmless(place, num_cases):
    """To every file in every way, then at random."""
    rng, paths, clean = random.Random(num_cases), place.files(), place.read()
    cases = [(path, kind) for path in paths for kind in KINDS]
    # A measure without a record is done again.
    cases = [x for x in cases if (x[0].parent.name, x[1]) != ("measures", "missing")]
    cases += [(rng.choice(paths), rng.choice(KINDS[:4])) for _ in range(num_cases - len(cases))]
    results = Counter()
    for path, kind in cases:
        before = path.read_bytes()
        damage(path, kind, rng)
        result = outcome(place, path, clean)
        if result not in ("reported", "harmless"):
            result = f"{kind} of {path.relative_to(place.root)}: {result}"
        results[result] += 1
        if path.is_dir():
            path.rmdir()
        path.write_bytes(before)
    assert results.keys() <= {"reported", "harmless"}
    assert place.read() == clean
    # What can be restored, and a changed number in the log, do no harm. All else is reported.
    assert results["reported"] > 0.8 * len(cases)
