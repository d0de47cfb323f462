"""One browser for all tests of a session, or of a worker of pytest-xdist."""

import pytest

from tests.reports.browser import start_browser


@pytest.fixture(scope="session")
def browser(tmp_path_factory):
    """A headless Chromium without a network; skips the test where there is none."""
    yield from start_browser(tmp_path_factory.mktemp("browser"))
