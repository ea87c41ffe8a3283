"""The baseline as another toolkit trains it: its text and settings, and the measure that runs the
toolkit and scores it.

The text is files of tokens, `train.src`, `train.tgt` and so on. A token is written as its number in
our vocabulary, since some characters of pieces are separators elsewhere; unknown ones are `<unk>`,
which every toolkit knows. `<s>`, `</s>` and padding are each toolkit's own.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from shapeshift._system.errors import ShapeshiftError
from shapeshift._system.files import open_in_place, read, save
from shapeshift._system.threads import environment_of_others
from shapeshift.config import Config
from shapeshift.data.config import SPLITS, Split
from shapeshift.data.prepared import Prepared
from shapeshift.data.store import TokenStore
from shapeshift.data.subwords import SEP, UNK
from shapeshift.evaluation.tokenizers import make_bleu
from shapeshift.positions import SCHEMES
from shapeshift.run.folder import Run, detokenizer
from shapeshift.run.measures import BLEU, Metric, Result, bleu_of, files_of, mean_result
from shapeshift.run.record import tail
from shapeshift.training.config import Cosine, Noam

TestSplit = Literal["valid", "test"]
TEST_SPLITS: tuple[TestSplit, TestSplit] = ("valid", "test")
SIDES = ("src", "tgt")
UNKNOWN = "<unk>"

Commands = Mapping[str, Sequence[str]]
"""Name → program and arguments, in the order in which they are run."""


@dataclass(frozen=True)
class Baseline:
    """A run to repeat with another toolkit.

    Attributes:
        config: ours.
        data: prepared.
        text: the folder of the text.
        directory: where the toolkit may write.
        gpu: whether to train on one.
    """

    config: Config
    data: Prepared
    text: Path
    directory: Path
    gpu: bool

    def __post_init__(self) -> None:
        """Raise `ShapeshiftError` for settings that no toolkit can repeat."""
        training = self.config.training
        unlike = {
            "position=ape": self.config.position.scheme != SCHEMES["ape"],
            "training.optimizer.name=adam": training.optimizer.name != "adam",
            "training.optimizer.weight_decay=0": training.optimizer.weight_decay != 0,
            "training.schedule.name=noam or inverse_sqrt": isinstance(training.schedule, Cosine),
            "training.compile=false": training.compile,
            "training.init_from=null": training.init_from is not None,
            "training.patience=null": training.patience is not None,
            "training.final_weights=average": training.final_weights != "average",
        }
        for needed, wrong in unlike.items():
            if wrong:
                raise ShapeshiftError(f"other toolkits repeat the baseline alone: set {needed}")

    @property
    def vocabularies(self) -> dict[str, list[str]]:
        """The tokens of each side, mostly numbers, without the special tokens that every toolkit
        adds."""
        sizes = zip(SIDES, self.data.subwords.sizes, strict=True)
        return {side: [str(number) for number in range(SEP, size)] for side, size in sizes}

    @property
    def peak(self) -> float:
        """The largest learning rate, at the end of the warm-up."""
        schedule = self.config.training.schedule
        if isinstance(schedule, Noam):
            scale = self.config.model.dim * schedule.warmup_updates
            return float(schedule.factor * scale**-0.5)
        return schedule.peak

    @property
    def saved_updates(self) -> list[int]:
        """Updates of the checkpoints that are averaged into the final model."""
        return self.config.training.averaged_updates(self.config.training.max_updates)


@dataclass(frozen=True)
class Toolkit:
    """Another toolkit as a measure: BLEU of the run's settings trained by it, in the bucket of its
    name, over each file of validation and test set, and their means.

    Attributes:
        name: of the rows.
        programs: that have to be there.
        install: how to get it.
        commands: writes the toolkit's settings, and returns what trains, averages and translates,
            given the paths of the programs; raises `ShapeshiftError` if the toolkit cannot do what
            the settings want.
        translations: returns the tokens of the translations, in the order of the text.
    """

    name: str
    programs: tuple[str, ...]
    install: str
    commands: Callable[[Baseline, Mapping[str, str]], Commands]
    translations: Callable[[Baseline, TestSplit], list[str]]

    @property
    def metrics(self) -> tuple[Metric, ...]:
        """The metrics that this measure declares."""
        return (replace(BLEU, splits=TEST_SPLITS, buckets=(self.name,)),)

    def missing(self) -> str | None:
        """Return how to install the toolkit, in one line; `None` if it is installed."""
        absent = [name for name in self.programs if _find(name) is None]
        if not absent:
            return None
        return f"{self.name} is left out: {absent[0]} is not on the PATH; {self.install}"

    def __call__(self, run: Run, data: Prepared) -> list[Result]:
        """Train, translate and score, all in `toolkits/NAME` next to the run's folder.

        Raises:
            ShapeshiftError: the toolkit or BLEU's tokenizer is not there; the toolkit cannot do
                what the run does, or failed.
        """
        if reason := self.missing():
            raise ShapeshiftError(reason)
        make_bleu(run.config.bleu_tokenizer)  # an error now, not after training
        folder = run.directory.absolute().parent / "toolkits"
        on_gpu = run.device.type == "cuda"
        baseline = Baseline(run.config, data, folder / "text", folder / self.name, on_gpu)
        export(data, baseline.text)
        paths = {name: path for name in self.programs if (path := _find(name))}
        run_commands(self.commands(baseline, paths), baseline.directory)
        return [row for split in TEST_SPLITS for row in self._score(baseline, split)]

    def _score(self, baseline: Baseline, split: TestSplit) -> list[Result]:
        data, detokenize = baseline.data, detokenizer(baseline.config)
        lines = self.translations(baseline, split)
        hypotheses = [detokenize(text) for text in join(lines, data, split)]
        _, references = data.text(split)
        rows = [
            row
            for name, part in (files_of(data, split) or {split: slice(None)}).items()
            for row in bleu_of(baseline.config, hypotheses[part], references[part], name, self.name)
        ]
        return [*rows, mean_result(rows, split)]


def export(data: Prepared, directory: Path) -> None:
    """Write all splits. Pairs with an empty side are left out: toolkits do not agree on them."""
    for split in SPLITS:
        store = data.store(split)
        numbers = _not_empty(store)
        for column, side in enumerate(SIDES):
            rows = (store[number][column].tolist() for number in numbers)
            lines = (" ".join(UNKNOWN if x == UNK else str(x) for x in ids) for ids in rows)
            save(directory / f"{split}.{side}", "".join(f"{line}\n" for line in lines))


def join(lines: Sequence[str], data: Prepared, split: Split) -> list[str]:
    """Return the text of translations that a toolkit wrote, one for each pair of the split; empty
    where the pair was left out.

    Raises:
        ShapeshiftError: their number is wrong.
    """
    store = data.store(split)
    numbers = _not_empty(store)
    if len(lines) != len(numbers):
        raise ShapeshiftError(
            f"the toolkit wrote {len(lines)} translations of {split}, expected {len(numbers)}"
        )
    texts = [""] * len(store)
    for number, line in zip(numbers, lines, strict=True):
        ids = [UNK if word == UNKNOWN else int(word) for word in line.split()]
        texts[number] = data.subwords.decode_target(ids)
    return texts


def _not_empty(store: TokenStore) -> list[int]:
    return [number for number in range(len(store)) if all(map(len, store[number]))]


def _find(program: str) -> str | None:
    """Return the path of a program, from the PATH or the folder of this interpreter."""
    folders = os.environ.get("PATH", os.defpath), str(Path(sys.executable).parent)
    return shutil.which(program, path=os.pathsep.join(folders))


def run_commands(commands: Commands, directory: Path) -> None:
    """Run commands in a folder, in order. `NAME.done` lists the finished ones: a command runs again
    only if its arguments or an earlier command have changed. `NAME.log` has its output.

    Raises:
        ShapeshiftError: one of them failed; the last line of its log is in the message.
    """
    script = ""
    for name, arguments in commands.items():
        script += shlex.join(arguments) + "\n"
        done, log = directory / f"{name}.done", directory / f"{name}.log"
        if done.is_file() and read(done).decode() == script:
            continue
        # Checkpoints of other toolkits hold settings next to tensors; PyTorch reads those only on
        # request.
        environment = environment_of_others() | {"TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD": "1"}
        with open_in_place(log, "wb") as output:
            status = subprocess.run(
                arguments,
                cwd=directory,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=environment,
            ).returncode
        if status:
            last = tail(log).strip().rpartition("\n")[2][:300] or "it printed nothing"
            raise ShapeshiftError(
                f"{Path(arguments[0]).name} ended with status {status}: {last}", path=log
            )
        save(done, script)
