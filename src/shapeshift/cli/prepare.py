"""`shapeshift prepare`: corpus, subwords, recipe, token store."""

from __future__ import annotations

from shapeshift.cli.options import PREPARED_ROOT, ConfigFile, Overrides, PreparedRoot
from shapeshift.cli.output import notice, show, show_table


def prepare(
    config: ConfigFile, overrides: Overrides = None, prepared: PreparedRoot = PREPARED_ROOT
) -> None:
    """Turn parallel text into subwords and a token store.

    Training does this by itself. Run it separately to see the counts, or before many runs on the
    same data. Prints the folder of the data, and the pairs read, kept and dropped in each split.
    """
    from shapeshift.cli.progress import Display
    from shapeshift.config import load_config
    from shapeshift.data.prepare import prepare as prepare_data
    from shapeshift.run.folder import prepared_directory
    from shapeshift.run.requirements import text_notices

    settings = load_config(config, overrides or [])
    directory = prepared_directory(settings.data, prepared)
    with Display() as display:
        data = prepare_data(settings.data, directory, display)
    rows = []
    for name, split in data.report.splits.items():
        dropped = ", ".join(f"{count:,} {reason}" for reason, count in split.dropped.items())
        counts = (f"{split.read:,}", f"{split.kept:,}", dropped or "0", f"{split.built:,}")
        sides = (split.source_length, split.target_length)
        spans = (f"{side.min} to {side.max}, mean {side.mean:.1f}" for side in sides)
        rows.append((name, *counts, *spans))
    header = ("split", "read", "kept", "dropped", "sequences", "source length", "target length")
    show_table(header, rows, numbers=False)
    for line in text_notices(settings, directory):
        notice(line)
    show(directory)
