"""A server of two untrained runs, for tests that leave it as it is."""

import httpx2
import pytest

from .untrained import serving, write_run


@pytest.fixture(scope="package")
def folders(tmp_path_factory):
    root = tmp_path_factory.mktemp("runs")
    return [write_run(root / "ape"), write_run(root / "rpe", "rpe")]


@pytest.fixture(scope="package")
def served(folders):
    """The service and its address."""
    with serving(folders) as (service, url):
        yield service, url


@pytest.fixture
def client(served):
    with httpx2.Client(base_url=served[1], timeout=20) as client:
        yield client
