"""Files of every kind of model, made once."""

import pytest

from tests.trust.forged_files import make_files


@pytest.fixture(scope="session")
def paths(tmp_path_factory):
    return make_files(tmp_path_factory.mktemp("whole"))
