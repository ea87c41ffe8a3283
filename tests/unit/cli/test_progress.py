"""Text of the user's on a terminal: printed as it is."""

import io

from shapeshift.cli.progress import PlainConsole, Steps, make_progress


def test_brackets_and_colons_in_names_are_printed_as_they_are():
    out = PlainConsole(file=io.StringIO(), width=80)
    out.print("runs/[/bold] [red]x :smile:")
    assert out.file.getvalue() == "runs/[/bold] [red]x :smile:\n"


def test_a_stage_may_have_brackets_in_its_name(monkeypatch):
    terminal = PlainConsole(file=io.StringIO(), force_terminal=True, width=120)
    monkeypatch.setattr("shapeshift.cli.progress.console", terminal)
    with make_progress() as progress:
        Steps(progress)("test runs/[/bold]", 1, 2)
    assert "test runs/[/bold]" in terminal.file.getvalue()
