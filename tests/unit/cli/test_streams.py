"""Standard output that is full: one line and a status; closed streams: no notice elsewhere."""

import shlex
import subprocess
import sys

import pytest

from ..serve.untrained import write_run
from .running import program


@pytest.fixture(scope="module")
def shell(tmp_path_factory):
    """Run a command with its streams redirected by a shell; return status, output and errors."""
    folder = tmp_path_factory.mktemp("streams")
    (folder / "text").write_text("a b c d e\nf g h i j\n")
    write_run(folder / "run", decoding={"beam": 1, "max_length_a": 5.0, "max_length_b": 50})

    def run(arguments):
        command = f"{shlex.quote(sys.executable)} -m shapeshift {arguments}"
        done = program("bash", "-c", command, cwd=folder, stdin=subprocess.DEVNULL)
        return done.returncode, done.stdout, done.stderr

    return run


ERROR = "shapeshift: error: "
LOST = f"{ERROR}standard output is closed; the results are lost"


@pytest.mark.parametrize("arguments", ["--help", "score text text", "translate run text"])
@pytest.mark.parametrize(
    ("redirection", "said"),
    [
        (">&-", [LOST]),
        (">/dev/full", [f"{ERROR}No space left on device"]),
        ("| true; exit ${PIPESTATUS[0]}", []),
    ],
)
def test_results_that_nobody_can_read_are_an_error_but_no_news_to_a_reader_that_goes(
    shell, arguments, redirection, said
):
    status, out, err = shell(f"{arguments} {redirection}")
    assert (status, out) == (1, "")
    assert [x for x in err.splitlines() if not x.startswith("text")] == said  # but for notices


@pytest.mark.parametrize(
    ("redirection", "status", "said"),
    [
        ("text text >&-", 1, LOST),
        ("text text <&- 2>&-", 0, ""),
        ("- text <&-", 1, f"{ERROR}0 hypotheses but 2 references"),
    ],
)
def test_of_a_closed_stream_nothing_is_read_and_what_cannot_be_written_is_an_error(
    shell, redirection, status, said
):
    found = shell(f"score {redirection} --json scores.json; s=$?; head -c1 scores.json; exit $s")
    assert found[0] == status
    assert found[2].startswith(said)
    if found[1]:
        assert found[1] == "{" or found[1].endswith("\n{")  # a notice in it would come first
