"""`shapeshift serve` under load and hostile requests, for some seconds; `make soak`: minutes."""

from ..soak.serve_under_load import soak  # noqa: TID252 (`tests` is no package)


def test_nothing_that_clients_send_harms_the_server(tmp_path):
    report = soak(tmp_path, seconds=12, seed=1)
    assert report["faults"] == []
