"""Measures that train the baseline in another toolkit and score its translations."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from shapeshift.data.prepared import Prepared
from shapeshift.errors import ShapeshiftError
from shapeshift.evaluation.metrics import score_corpus
from shapeshift.evaluation.tokenizers import make_bleu
from shapeshift.lab.measures import Measurement, bleu_measurement, files_of, mean_measurement
from shapeshift.lab.run import Run, detokenizer
from shapeshift.lab.toolkits.baseline import TEST_SPLITS, Baseline, TestSplit, Toolkit
from shapeshift.lab.toolkits.commands import find_program, run_commands
from shapeshift.lab.toolkits.export import export, join
from shapeshift.lab.toolkits.fairseq import Fairseq
from shapeshift.lab.toolkits.opennmt import OpenNmt
from shapeshift.training.precision import choose_device


@dataclass(frozen=True)
class TrainedBy:
    """BLEU of the run's settings trained by another toolkit, in the bucket of the toolkit's name:
    over each file of validation and test set, and their means."""

    toolkit: Toolkit

    def missing(self) -> str | None:
        """Return how to install the toolkit, in one line; `None` if it is installed."""
        lacking = next((name for name, path in self._programs().items() if path is None), None)
        if lacking is None:
            return None
        toolkit = self.toolkit
        return f"{toolkit.name} is left out: {lacking} is not on the PATH; {toolkit.install}"

    def __call__(self, run: Run, data: Prepared) -> list[Measurement]:
        """Train, translate and score, all in `toolkits/NAME` next to the run's folder.

        Raises:
            ShapeshiftError: the toolkit or BLEU's tokenizer is not there; the toolkit cannot do
                what the run does, or failed.
        """
        if reason := self.missing():
            raise ShapeshiftError(reason)
        make_bleu(run.config.bleu_tokenizer)
        folder = run.directory.parent / "toolkits"
        baseline = Baseline(
            run.config,
            export(data, folder.absolute() / "text"),
            folder.absolute() / self.toolkit.name,
            choose_device(run.config.training.device).type == "cuda",
        )
        programs = {name: path for name, path in self._programs().items() if path is not None}
        run_commands(self.toolkit.commands(baseline, programs), baseline.directory)
        return [each for split in TEST_SPLITS for each in self._score(baseline, data, split)]

    def _programs(self) -> dict[str, Path | None]:
        return {name: find_program(name) for name in self.toolkit.programs}

    def _score(self, baseline: Baseline, data: Prepared, split: TestSplit) -> list[Measurement]:
        detokenize = detokenizer(baseline.config)
        try:
            lines = self.toolkit.translations(baseline, split)
            hypotheses = [detokenize(text) for text in join(lines, data, split)]
        except (OSError, ValueError, LookupError) as error:
            raise ShapeshiftError(
                f"{self.toolkit.name}'s translations of {split} cannot be read ({error!r}); remove"
                " the folder to run it again",
                path=baseline.directory,
            ) from error
        _, references = data.text(split)
        parts = files_of(data, split, len(references)) or {split: slice(None)}
        rows = []
        tokenizer = baseline.config.bleu_tokenizer
        for name, part in parts.items():
            texts = hypotheses[part], references[part]
            [bleu] = score_corpus(*texts, ("bleu",), tokenizer=tokenizer)
            rows.append(bleu_measurement(bleu, *texts, dataset=name, bucket=self.toolkit.name))
        return [*rows, mean_measurement(rows, split)]


FAIRSEQ, OPENNMT = TrainedBy(Fairseq()), TrainedBy(OpenNmt())
