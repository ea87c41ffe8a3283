"""Nothing of the package runs code that it reads: no pickle, under any of its names.

Other packages that it calls could. COMET's checkpoint is first read with `weights_only`: tensors
and plain values alone (test_comet.py). The toolkits of SHAPE's Table 7 are programs of
their own: fairseq and OpenNMT-py unpickle the checkpoints that they have themselves just written.
"""

import re
from pathlib import Path

import shapeshift

ROOT = Path(shapeshift.__file__).parent
FORBIDDEN = re.compile(
    r"pickle|\bdill\b|\bjoblib\b|\bmarshal\b|\bshelve\b|torch\.(save|hub)\b"
    r"|torch\.load\((?!.*weights_only=True\))|from torch import .*\b(load|save)\b"
    r"|(np|numpy)\.load\b|(?<![.\w])(eval|exec)\("
    r"|yaml\.(unsafe_)?load\("
)
OF_OTHERS = re.compile(r"load_from_checkpoint|load_checkpoint_to_cpu|NO_WEIGHTS_ONLY_LOAD\": \"1")


def lines_that_run_what_they_read(root, forbidden=FORBIDDEN):
    return [
        f"{path.relative_to(root)}:{number}: {line.strip()}"
        for path in sorted(root.rglob("*.py"))
        for number, line in enumerate(path.read_text(encoding="utf-8").split("\n"), start=1)
        if forbidden.search(line)
    ]


def test_the_package_unpickles_nothing():
    assert lines_that_run_what_they_read(ROOT) == []


def test_few_modules_have_other_packages_read_checkpoints():
    found = lines_that_run_what_they_read(ROOT, OF_OTHERS)
    assert {line.partition(":")[0] for line in found} == {
        "evaluation/comet.py",
        "lab/toolkits/average_fairseq.py",
        "lab/toolkits/baseline.py",
    }
