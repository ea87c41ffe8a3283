"""What /openapi.json says is what the server does, by schemathesis."""

import pytest

pytest.importorskip("schemathesis")

from ..cli.running import python

# Text and lists that are too long are 413: by subwords, which a schema cannot count, as well.
SETTINGS = """
[checks]
negative_data_rejection.expected-statuses = ["400", "404", "405", "413", "422"]
positive_data_acceptance.expected-statuses = ["2xx", "413"]
"""


def test_the_server_does_what_its_schema_says(served, tmp_path):
    (tmp_path / "schemathesis.toml").write_text(SETTINGS, encoding="utf-8")
    command = ["run", "--max-examples", "15", "--seed", "1", "--no-color", "--continue-on-failure"]
    program = ("-m", "schemathesis.cli")
    done = python(*program, *command, f"{served[1]}/openapi.json", cwd=tmp_path)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    assert "4 selected / 4 total" in done.stdout
