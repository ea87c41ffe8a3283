"""The run of a stranger: its hashes are right, and its files say anything."""

from __future__ import annotations

import json
import os
import random
import resource
import shutil
import signal
import traceback
from collections import Counter
from pathlib import Path

import pytest
import yaml

from shapeshift._system.errors import ShapeshiftError, out_of_memory
from shapeshift._system.hashes import SUMS, seal
from shapeshift.data.prepared import REPORT_OF_RUN, Report
from shapeshift.run.folder import AVERAGE, CONFIG, Run
from shapeshift.training.log import read_log

from ..serve.untrained import write_run

VALUES = (
    *(0, -1, 3, 10**9, 7.5, float("nan"), None, True),
    *("a", "", "../x", "/dev/null", [], {}, [[1]]),
)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = write_run(tmp_path_factory.mktemp("strangers") / "run")
    (folder / "log.jsonl").write_text('{"update": 1, "loss": 2.0}\n' * 3)
    return folder


def places(document, above=()):
    """Yield the keys on the way to each value of a document."""
    pairs = document.items() if isinstance(document, dict) else enumerate(document)
    for key, value in pairs:
        yield (*above, key)
        if isinstance(value, dict | list):
            yield from places(value, (*above, key))


def change(path: Path, rng: random.Random) -> None:
    """Change values of a YAML or JSON document, or bytes of any file."""
    if path.name == CONFIG and rng.random() < 0.8:
        document = yaml.safe_load(path.read_text())
        *above, last = rng.choice([*places(document)])
        section = document
        for key in above:
            section = section[key]
        section[last] = rng.choice(VALUES)
        path.write_text(yaml.safe_dump(document))
        return
    content = bytearray(path.read_bytes())
    for _ in range(rng.randint(1, 5)):
        place = rng.randrange(min(len(content), 3_000))
        content[place : place + 1] = rng.choice([rng.randbytes(1), b"", b"\0", b"9", b"{", b"\n"])
    path.write_bytes(content)


def ending(folder: Path) -> str:
    """Use a run in a process of its own; return how that ended."""
    child = os.fork()
    if not child:
        status = 1
        try:
            signal.alarm(20)  # settings may ask for a billion tokens
            resource.setrlimit(resource.RLIMIT_AS, (8 << 30, 8 << 30))
            read_log(folder / "log.jsonl")
            Run(folder).translate(["ab cd", "", "fe"])
            status = 0
        except ShapeshiftError as error:
            status = 1 if "\n" in str(error) else 3
        except Exception as error:
            if out_of_memory(error):
                status = 4
            else:
                traceback.print_exc()
        finally:
            os._exit(status)
    result = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    names = {0: "used", 1: "traceback", 3: "refused", 4: "out of memory", -signal.SIGALRM: "long"}
    return names.get(result, f"{result}")


@pytest.mark.parametrize("num_cases", [40, pytest.param(1_500, marks=pytest.mark.soak)])
def test_no_run_of_a_stranger_ends_in_a_traceback(whole, num_cases, tmp_path):
    rng, endings = random.Random(0), Counter()
    folder = tmp_path / "run"
    for _ in range(num_cases):
        shutil.copytree(whole, folder)
        names = (CONFIG, CONFIG, "subwords/joint.model", AVERAGE, "log.jsonl")
        change(folder / rng.choice(names), rng)
        (folder / SUMS).unlink(missing_ok=True)
        seal(folder)
        endings[ending(folder)] += 1
        shutil.rmtree(folder)
    assert endings.keys() <= {"used", "refused", "out of memory", "long"}, endings
    assert endings["refused"] > num_cases / 4


def test_parts_that_are_no_list_are_refused_in_one_line(tmp_path):
    (tmp_path / CONFIG).write_text("position: {parts: 3}\n")
    with pytest.raises(ShapeshiftError, match=r"position\.parts: expected a list"):
        Run(tmp_path)


def test_the_account_of_a_strangers_data_is_refused_in_one_line(whole, tmp_path):
    folder = shutil.copytree(whole, tmp_path / "run")
    (folder / REPORT_OF_RUN).write_text(json.dumps({"format": 1, "config": []}))
    assert Run(folder).translate(["ab"])  # which does not need it


@pytest.mark.parametrize("where", [CONFIG, REPORT_OF_RUN])
def test_code_in_a_strangers_run_is_not_run_by_way_of_a_recipe(whole, tmp_path, monkeypatch, where):
    folder = shutil.copytree(whole, tmp_path / "run")
    module = f"evil_{where.partition('.')[0]}"
    (folder / f"{module}.py").write_text("open('ran', 'w')\ndef f(pair):\n    return pair\n")
    recipe = {"name": "own", "function": f"{module}:f"}
    if where == CONFIG:
        document = yaml.safe_load((folder / CONFIG).read_text())
        document["data"]["recipe"] = recipe
    else:
        document = {"format": 1, "config": {"recipe": recipe}}
    (folder / where).write_text(json.dumps(document))
    (folder / SUMS).unlink()
    seal(folder)
    monkeypatch.chdir(folder)
    with pytest.raises(ShapeshiftError, match=r"whose code is not run|is damaged"):
        Run(".") if where == CONFIG else Report.read(folder / REPORT_OF_RUN, "prepare it anew")
    assert not (folder / "ran").exists()
