"""The configuration of a run of a second; Chromium, by the extra `browser` and a browser of the
system's."""

import shutil
from contextlib import contextmanager

import pytest

MINE = """\
data:
  corpus: {corpus: grammar, num_train: 1200, num_valid: 20, num_test: 60}
  subwords: {vocab_size: 500}
  recipe: {name: extrapolate, max_length: 20}
model: {dim: 16, num_heads: 2, ff_dim: 16, encoder_layers: 1, decoder_layers: 1}
training: {max_updates: 4, batch: {max_tokens: 500}, checkpoint_every: 2, log_every: 2,
  average_checkpoints: 1, device: cpu}
decoding: {beam: 1, max_length_a: 0, max_length_b: 12}
evaluation: {length_buckets: [21, 41]}
"""

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


@pytest.fixture
def open_page(browser):
    """Open a page; at the end nothing may have come from elsewhere or been complained about."""

    @contextmanager
    def opening(url, complaints=(), **settings):
        context = browser.new_context(reduced_motion="reduce", **settings)
        page = context.new_page()
        heard, fetched = [], []
        page.on("console", lambda message: heard.append(message.text))
        page.on("pageerror", lambda error: heard.append(str(error)))
        page.on("request", lambda request: fetched.append(request.url))
        page.goto(url)
        yield page
        context.close()
        assert all(any(each in line for each in complaints) for line in heard), heard
        assert all(address.startswith((url, "data:")) for address in fetched)

    return opening


@pytest.fixture
def grave_faults():
    """Return a function: the serious and critical faults that axe finds in a page."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="axe is not there")

    def find(page):
        found = axe.Axe().run(page).response["violations"]
        grave = [each for each in found if each["impact"] in ("serious", "critical")]
        return [(each["id"], each["nodes"][0]["html"][:200]) for each in grave]

    return find
