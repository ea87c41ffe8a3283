"""The documentation's search runs in a worker, also in pages that are opened from the disk."""

from pathlib import Path

import yaml

DOCS = Path(__file__).resolve().parents[2] / "docs"
SHIM = "iframe-worker.js"

PAGE = """<!doctype html><html lang="en"><title>x</title><link rel="icon" href="data:,">
<script src="{shim}"></script><p id="answer"></p>
<script>
  const worker = new Worker(new URL("worker.js", location));
  worker.addEventListener("message", ({{ data }}) => {{
    document.getElementById("answer").textContent += data;
  }});
  for (const text of ["a", "b"]) worker.postMessage(text);
</script></html>"""


def test_a_worker_answers_in_a_page_on_the_disk(browser, tmp_path):
    (tmp_path / "worker.js").write_text(
        "addEventListener('message', ({ data }) => postMessage(data + '!'));", "utf-8"
    )
    (tmp_path / SHIM).write_bytes((DOCS / SHIM).read_bytes())
    (tmp_path / "page.html").write_text(PAGE.format(shim=SHIM), "utf-8")
    page = browser.new_page()
    page.goto((tmp_path / "page.html").as_uri())
    page.get_by_text("a!b!").wait_for(timeout=10_000)
    page.close()


def test_the_site_has_what_search_needs_on_the_disk():
    text = (DOCS.parent / "mkdocs.yml").read_text("utf-8").partition("\nmarkdown_extensions")[0]
    site = yaml.safe_load(text)
    assert "offline" in site["plugins"]
    assert site["extra"]["polyfills"] == [SHIM]
