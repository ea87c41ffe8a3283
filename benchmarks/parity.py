"""Export small random models of every kind at every place to every engine and compare: sentences,
tokens of beam search that differ, the largest difference of a score.

    python benchmarks/parity.py --write      # the table of docs/guides/exporting.md

The comparison is the one that each export makes (`shapeshift.export.parity`): log p of the target's
tokens, in a batch and alone, and beam search. What an engine refuses is tried as well, and an error
unless `shapeshift export --list` says so.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import torch

from shapeshift._system.errors import ShapeshiftError
from shapeshift.data.config import SubwordsConfig
from shapeshift.data.grammar import generate
from shapeshift.data.subwords import Subwords
from shapeshift.export import ctranslate2, onnx, support
from shapeshift.export.folder import Report, Trained
from shapeshift.export.huggingface import write
from shapeshift.export.parity import Parity, ParityError
from shapeshift.model import ModelConfig, Transformer, build
from shapeshift.model.position_config import PositionConfig, spelled_out
from shapeshift.positions import KINDS, SCHEMES, Scheme

GUIDE = Path(__file__).parents[1] / "docs" / "guides" / "exporting.md"
BEGIN, END = "<!-- benchmarks/parity.py writes this table -->\n", "<!-- end of the table -->"
SHAPE = {"dim": 32, "num_heads": 4, "ff_dim": 48, "encoder_layers": 2, "decoder_layers": 2}
LONGEST = (20, 15)

EXPORTS: dict[str, Callable[[Trained, Path], Report]] = {
    "Hugging Face": partial(write.export, card=""),
    "ONNX": onnx.export,
    "CTranslate2": ctranslate2.export,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kinds", nargs="+", default=[*KINDS], choices=KINDS)
    parser.add_argument("--models", type=int, default=1, help="of each row")
    parser.add_argument("--write", action="store_true", help="into the guide")
    args = parser.parse_args()
    torch.set_num_threads(1)
    pairs = [*generate(200, seed=1, max_words=8)]
    lines = [" | ".join(("| kind", "place", *EXPORTS)) + " |", "|---|---|" + "---|" * len(EXPORTS)]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "subwords"
        subwords = Subwords.train(lambda: pairs, SubwordsConfig(vocab_size=120), folder)
        for kind, scheme in _schemes():
            if kind.split()[0] not in args.kinds:
                continue
            cells = _compare(scheme, args.models, subwords, folder)
            place = scheme.parts[0].at
            lines.append(" | ".join((f"| `{kind}`", place, *cells)) + " |")
            print(lines[-1], flush=True)
    if args.write:
        before, _, rest = GUIDE.read_text(encoding="utf-8").partition(BEGIN)
        after = rest.partition(END)[2]
        table = "\n" + "\n".join(lines) + "\n\n"
        GUIDE.write_text(f"{before}{BEGIN}{table}{END}{after}", encoding="utf-8")


def _schemes() -> Iterator[tuple[str, Scheme]]:
    for name, part in support.rows():
        yield name, Scheme(parts=(part,))
        if (part.kind, part.at) == ("sinusoidal", "embedding"):
            for ids in ("shape", "randomized"):
                scheme = SCHEMES[ids]
                yield f"{name} (position_ids: {scheme.position_ids.name})", scheme


def _compare(scheme: Scheme, num_models: int, subwords: Subwords, folder: Path) -> list[str]:
    """Return a cell for each engine."""
    sinusoidal = scheme.parts[0].kind == "sinusoidal" and scheme.parts[0].at == "embedding"
    # Post-norm is what MarianMT is.
    shape = ModelConfig(**SHAPE, norm="post" if sinusoidal else "pre")
    said = support.by_engine(scheme, shape)
    cells = []
    for engine, export in EXPORTS.items():
        results = []
        for seed in range(num_models):
            model = _random_model(shape, scheme, subwords.source_size, seed)
            position = PositionConfig(**spelled_out("mine", scheme))
            trained = Trained(model, shape, position, subwords, folder, LONGEST)
            with tempfile.TemporaryDirectory() as target:
                try:
                    results.append(export(trained, Path(target) / "model").parity)
                except ParityError:
                    raise
                except ShapeshiftError:
                    if not said[engine].startswith(support.REFUSED):
                        raise
        cells.append(_cell(results))
    return cells


def _random_model(shape: ModelConfig, scheme: Scheme, size: int, seed: int) -> Transformer:
    torch.manual_seed(seed)
    model = build(shape, scheme, size, size).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.1 * torch.randn_like(parameter)
    return model


def _cell(results: list[Parity]) -> str:
    if not results:
        return "refused"
    sentences = sum(len(each.lengths) for each in results)
    mismatches, tokens = (
        sum(getattr(each, name) for each in results) for name in ("num_mismatches", "num_tokens")
    )
    worst = max(max(each.log_prob, each.alone, each.beam_score) for each in results)
    return f"{sentences}, {mismatches} of {tokens}, {worst:.0e}"


if __name__ == "__main__":
    main()
