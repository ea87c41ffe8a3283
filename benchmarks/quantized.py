"""What quantization costs: BLEU of a trained run's test set by PyTorch and by CTranslate2.

    shapeshift train short position=rpe --run runs/short-rpe
    python benchmarks/quantized.py runs/short-rpe

Each engine translates the same text with the run's own settings of decoding. On a CPU without VNNI,
compare with CT2_USE_MKL=1 (docs/guides/exporting.md).
"""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path

from shapeshift._system.threads import set_num_threads
from shapeshift.data.prepare import prepare
from shapeshift.data.sources.files import read_lines
from shapeshift.evaluation.metrics import score_corpus
from shapeshift.run.export import export_run
from shapeshift.run.folder import load_run, prepared_directory

PREFIX = "benchmark-ctranslate2"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run", type=Path)
    parser.add_argument("--quantization", nargs="+", default=["int8", "int8_float32", "bfloat16"])
    parser.add_argument("--prepared", type=Path, default=Path("prepared"))
    parser.add_argument(
        "--text", type=Path, nargs=2, help="source and references, not the test set"
    )
    args = parser.parse_args()
    run = load_run(args.run, ["training.precision=fp32"])
    set_num_threads(run.config.model.dim)
    if args.text:
        sources, references = (list(read_lines(path)) for path in args.text)
    else:
        data = prepare(run.config.data, prepared_directory(run.config.data, args.prepared))
        sources, references = data.text("test")
    translations = {"torch, fp32": list(run.translator().translate(sources))}
    for quantization in (None, *args.quantization):
        folder = args.run / f"{PREFIX}-{quantization}"
        try:
            export_run(run, "ctranslate2", folder, quantization=quantization)
            translator = run.translator(engine=folder.name)
            name = f"ctranslate2, {quantization or 'fp32'}"
            translations[name] = list(translator.translate(sources))
        finally:
            shutil.rmtree(folder, ignore_errors=True)
    first = translations["torch, fp32"]
    print(f"{len(sources):,} sentences")
    print(f"{'engine':26}{'BLEU':>8}{'difference':>12}{'same output':>13}")
    base = None
    for name, lines in translations.items():
        [bleu] = score_corpus(lines, references, ["bleu"], tokenizer=run.config.bleu_tokenizer)
        base = bleu.value if base is None else base
        same = sum(a == b for a, b in zip(lines, first, strict=True)) / len(lines)
        print(f"{name:26}{bleu.value:8.2f}{bleu.value - base:+12.2f}{same:13.0%}")


if __name__ == "__main__":
    main()
