"""Run PyTorch's own tests of attention and Transformer layers with our drop-ins.

    python benchmarks/peer_tests.py ~/pytorch/test/nn/test_multihead_attention.py
    python benchmarks/peer_tests.py ~/pytorch/test/test_transformers.py -k TestTransformersCPU

The files are those of a checkout of PyTorch at the installed version; their tests also need the
package expecttest. Further options are pytest's. Each test runs twice on the CPU, in processes of
its own: with torch.nn's classes, and with those of `shapeshift.interop.torch_nn` in their place.
The command prints how many tests pass, and each test that passes with torch's classes and not with
ours; it exits 1 if there is one.
"""

from __future__ import annotations

import argparse
import functools
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

CLASSES = "SHAPESHIFT_PEER_TESTS"
"""Variable of the processes that run tests, which load this file as a plugin: whose classes."""

num_built = 0
"""Attention modules of the class under test that this process built."""


def replace_classes(whose: str) -> None:
    """Replace torch.nn's classes by ours if `whose` is "ours", and count the attentions built."""
    from torch import nn

    from shapeshift.interop import torch_nn

    for name in torch_nn.__all__ if whose == "ours" else ():
        theirs = getattr(nn, name)
        for module in [m for key, m in sys.modules.items() if key.split(".")[0] == "torch"]:
            if vars(module).get(name) is theirs:
                setattr(module, name, getattr(torch_nn, name))
    attention: Any = nn.MultiheadAttention  # by now, that of `whose`
    init = attention.__init__

    @functools.wraps(init)
    def counted(*args: Any, **kwargs: Any) -> None:
        global num_built
        num_built += 1
        init(*args, **kwargs)

    attention.__init__ = counted


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    before = num_built
    try:
        yield
    finally:
        item.user_properties.append(("built", num_built - before))


def run(whose: str, arguments: list[str]) -> dict[str, tuple[str, int]]:
    """Return each test's outcome, "passed", "skipped" or why it failed, and the number of attention
    modules that it built."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "report.xml")
        options = ["-q", "--no-header", "--tb=no", "--no-summary", "-o", "addopts="]
        options += ["-p", Path(__file__).stem, "-p", "no:cacheprovider", f"--junitxml={report}"]
        path = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
        variables = {"PYTHONPATH": path, "PYTORCH_TESTING_DEVICE_ONLY_FOR": "cpu", CLASSES: whose}
        command = [sys.executable, "-m", "pytest", *options, *arguments]
        done = subprocess.run(command, env=os.environ | variables, stdout=sys.stderr, check=False)
        if done.returncode not in (0, 1):  # 1: some tests failed; else, not all were run
            sys.exit(done.returncode)
        tests = list(ElementTree.parse(report).iter("testcase"))
    outcomes = {}
    for test in tests:
        outcome = "passed"
        for child in test:
            if child.tag in ("failure", "error"):
                outcome = child.get("message", "").split("To execute this test")[0]
            elif child.tag == "skipped":
                outcome = "skipped"
        built = sum(int(each.get("value", 0)) for each in test.iter("property"))
        outcomes[f"{test.get('classname')}.{test.get('name')}"] = outcome, built
    return outcomes


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="+", help="PyTorch's test files")
    arguments, options = parser.parse_known_args()
    theirs, ours = (run(whose, [*arguments.files, *options]) for whose in ("theirs", "ours"))
    for whose, outcomes in (("theirs", theirs), ("ours", ours)):
        passed = [built for outcome, built in outcomes.values() if outcome == "passed"]
        skipped = sum(outcome == "skipped" for outcome, _ in outcomes.values())
        print(
            f"{whose:6}  {len(outcomes)} tests: {len(passed)} passed, {skipped} skipped,"
            f" {len(outcomes) - len(passed) - skipped} failed;"
            f" {sum(map(bool, passed))} of those that passed build an attention module"
        )
    passing = [name for name, (outcome, _) in theirs.items() if outcome == "passed"]
    lost = {name: ours[name][0] for name in passing if ours[name][0] != "passed"}
    for name, reason in lost.items():
        print(f"{name}\n    {' '.join(reason.split())[:300]}")
    return 1 if lost else 0


if os.environ.get(CLASSES):
    replace_classes(os.environ[CLASSES])
elif __name__ == "__main__":
    sys.exit(main())
