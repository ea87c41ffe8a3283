"""Chromium, by the extra `browser` and a browser of the system's."""

import shutil

import pytest

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")


@pytest.fixture(scope="module")
def browser():
    reason = "the extra `browser` is not installed"
    api = pytest.importorskip("playwright.sync_api", reason=reason)
    program = next(filter(None, map(shutil.which, BROWSERS)), None)
    if program is None:
        pytest.skip("no Chromium on the PATH")
    with api.sync_playwright() as playwright:
        # In a container we may be root, for whom Chromium's sandbox refuses to work.
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield browser
        browser.close()
