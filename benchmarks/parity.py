"""Export small random models of every preset to every engine and compare: sentences, tokens of beam
search that differ, the largest difference of a score.

    python benchmarks/parity.py --write      # the table of docs/guides/exporting.md

The comparison is the one that each export makes (`shapeshift.export.parity`): log p of the target's
tokens, in a batch and alone, and beam search.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch

from shapeshift.data.config import SubwordsConfig
from shapeshift.data.grammar import generate
from shapeshift.data.subwords import Subwords
from shapeshift.errors import ShapeshiftError
from shapeshift.export import ctranslate2, huggingface, onnx
from shapeshift.export.folder import Report
from shapeshift.export.parity import Parity, ParityError
from shapeshift.export.trained import Trained
from shapeshift.model import ModelConfig, Transformer, build
from shapeshift.model.position_config import PositionConfig
from shapeshift.positions import PRESETS

GUIDE = Path(__file__).parents[1] / "docs" / "guides" / "exporting.md"
BEGIN, END = "<!-- benchmarks/parity.py writes this table -->\n", "<!-- end of the table -->"
SHAPE = {"dim": 32, "num_heads": 4, "ff_dim": 48, "encoder_layers": 2, "decoder_layers": 2}
ENGINES = ("ONNX", "CTranslate2", "Hugging Face")
LONGEST = (20, 15)

Export = Callable[[Path], Report]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--presets", nargs="+", default=[*PRESETS], choices=PRESETS)
    parser.add_argument("--models", type=int, default=3, help="of each preset")
    parser.add_argument("--write", action="store_true", help="into the guide")
    args = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as name:
        rows = [_row(preset, args.models, Path(name)) for preset in args.presets]
    lines = ["| preset | " + " | ".join(ENGINES) + " |", "|---|" + "---|" * len(ENGINES), *rows]
    print("\n".join(lines))
    if args.write:
        before, _, rest = GUIDE.read_text(encoding="utf-8").partition(BEGIN)
        after = rest.partition(END)[2]
        table = "\n" + "\n".join(lines) + "\n\n"
        GUIDE.write_text(f"{before}{BEGIN}{table}{END}{after}", encoding="utf-8")


def _row(preset: str, num_models: int, folder: Path) -> str:
    pairs = [*generate(200, seed=1, max_words=8)]
    models = folder / "subwords"
    subwords = Subwords.train(lambda: pairs, SubwordsConfig(vocab_size=120), models)
    results: dict[str, list[Parity]] = {engine: [] for engine in ENGINES}
    for seed in range(num_models):
        exports = _exports(preset, subwords, models, seed)
        for engine, export in exports.items():
            with tempfile.TemporaryDirectory(dir=folder) as target:
                try:
                    results[engine].append(export(Path(target) / "model").parity)
                except ParityError:
                    raise
                except ShapeshiftError:
                    continue  # refused: the engine cannot compute it exactly
    row = f"| `{preset}` | " + " | ".join(_cell(results[engine]) for engine in ENGINES) + " |"
    print(row, flush=True)
    return row


def _exports(preset: str, subwords: Subwords, folder: Path, seed: int) -> dict[str, Export]:
    # Post-norm is what MarianMT is.
    shape = ModelConfig(**SHAPE, norm="post" if preset in ("ape", "shape") else "pre")
    model = _random_model(shape, preset, subwords.source_size, seed)
    trained = Trained(model, shape, PositionConfig(name=preset), subwords, folder, LONGEST)
    return {
        "ONNX": partial(onnx.export, trained),
        "CTranslate2": partial(ctranslate2.export, trained),
        "Hugging Face": partial(huggingface.export, trained, card=""),
    }


def _random_model(shape: ModelConfig, preset: str, size: int, seed: int) -> Transformer:
    torch.manual_seed(seed)
    model = build(shape, PRESETS[preset], size, size).eval()
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
