import pytest

from .written import write_reproduced


@pytest.fixture(scope="session")
def reproduced(tmp_path_factory):
    """A folder of results; not to be changed."""
    return write_reproduced(tmp_path_factory.mktemp("reproduced"))
