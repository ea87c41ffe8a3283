"""The page of `shapeshift serve` in Chromium: a sentence in, translations and attention out."""

import re
import threading
from contextlib import contextmanager

import pytest

from shapeshift.run.folder import Run

from ..unit.serve.untrained import serving, write_run

SENTENCE = "ab cd fe."
PHONE = {"width": 390, "height": 844}


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    root = tmp_path_factory.mktemp("runs")
    return [write_run(root / "ape"), write_run(root / "rpe", "rpe")]


@pytest.fixture(scope="module")
def served(folders):
    with serving(folders) as (service, url):
        yield service, url


@pytest.fixture
def visit(open_page, served):
    @contextmanager
    def visiting(**settings):
        with open_page(served[1], **settings) as page:
            page.locator("#runs input").first.wait_for()
            yield page

    return visiting


def translate(page, sentence=SENTENCE):
    page.get_by_label("Sentence").fill(sentence)
    page.get_by_label("Sentence").press("Enter")
    page.locator(".map").first.wait_for()


def shares(page, run=0):
    """Return the shades of a run's map."""
    script = "t => [...t.querySelectorAll('td')].map(c => c.style.getPropertyValue('--share'))"
    return page.locator(".map").nth(run).evaluate(script)


def test_a_sentence_is_translated_by_all_runs(visit, folders):
    with visit() as page:
        translate(page)
        page.locator(".map").first.locator("tbody td").first.hover()
        assert re.fullmatch(r"<s> → ▁\w+: [\d.]+ %", page.locator(".readout").first.inner_text())
        assert page.locator(".run h2").all_inner_texts() == ["ape", "rpe"]
        expected = [Run(folder).translate([SENTENCE])[0] for folder in folders]
        assert page.locator(".translation").all_inner_texts() == expected
        assert "shaw at self" in page.locator(".run h2 + .note").nth(1).inner_text()
        assert "outlined" in page.locator(".run .note:has(+ .pieces)").first.inner_text()
        columns = page.locator(".map").first.locator("thead th").all_inner_texts()
        assert columns[-1] == "</s>"
        assert "".join(columns[:-1]).replace("▁", " ").strip() == SENTENCE
        assert page.locator(".map").first.locator("tbody th").first.inner_text() == "<s>"


def test_one_run_may_be_left_out(visit):
    with visit() as page:
        page.get_by_role("checkbox", name="ape").uncheck()
        translate(page)
        assert page.locator(".run h2").all_inner_texts() == ["rpe"]
        page.get_by_role("checkbox", name="rpe").uncheck()
        page.get_by_role("button", name="Translate").click()
        assert page.locator("#message").inner_text() == "Choose at least one run."


def test_another_kind_layer_and_head_show_other_attention(visit):
    with visit() as page:
        translate(page)
        heads = page.locator("#head").locator("option").all_inner_texts()
        assert heads == ["1", "2", "mean of all"]
        mean = shares(page)
        page.get_by_label("Head").select_option("1")
        first = shares(page)
        page.get_by_label("Head").select_option("2")
        second = shares(page)
        assert len({tuple(x) for x in (mean, first, second)}) == 3
        with page.expect_response("**/attention"):
            page.get_by_label("Attention", exact=True).select_option("encoder")
        page.locator("#results:not([aria-busy])").wait_for()
        rows = page.locator(".map").first.locator("tbody th").all_inner_texts()
        assert rows == page.locator(".map").first.locator("thead th").all_inner_texts()
        assert page.locator("#layer").locator("option").count() == 2
        page.get_by_label("Layer").select_option("1")
        lower = shares(page)
        page.get_by_label("Layer").select_option("2")
        assert shares(page) != lower


def test_what_the_server_refuses_is_said(visit):
    with visit(complaints=("413",)) as page:
        page.get_by_label("Sentence").fill("ab cd " * 40)
        page.get_by_role("button", name="Translate").click()
        page.locator("#message.error").wait_for()
        assert "takes at most 64" in page.locator("#message").inner_text()
        translate(page)
        assert page.locator("#message").inner_text() == ""


def test_text_is_text(visit):
    with visit() as page:
        translate(page, "<img src=x onerror=alert(1)> &amp; a\nb")
        assert page.locator("#results img").count() == 0
        assert "<" in "".join(page.locator(".map").first.locator("thead th").all_inner_texts())


def test_the_latest_sentence_counts(visit, served, monkeypatch):
    service, _ = served
    run, go = service.runs["ape"], threading.Event()
    compute = run.compute

    def slowly(task, sentences):
        assert go.wait(20)
        return compute(task, sentences)

    monkeypatch.setattr(run, "compute", slowly)
    with visit() as page:
        page.get_by_label("Sentence").fill("ab")
        page.get_by_label("Sentence").press("Enter")
        page.locator("#results[aria-busy]").wait_for(state="attached")
        page.get_by_label("Sentence").fill("cd cd")
        page.get_by_label("Sentence").press("Enter")
        go.set()
        page.locator(".map").first.wait_for()
        columns = page.locator(".map").first.locator("thead th").all_inner_texts()
        assert "".join(columns) == "▁cd▁cd</s>"


def test_a_server_that_is_gone_is_said(visit):
    with visit(complaints=("ERR_FAILED",)) as page:
        page.route("**/attention", lambda route: route.abort())
        page.get_by_label("Sentence").fill("ab")
        page.get_by_label("Sentence").press("Enter")
        page.locator("#message.error").wait_for()
        assert page.locator("#message").inner_text() == "The server does not answer."


@pytest.mark.parametrize("width", [320, 1400])
def test_the_page_is_never_wider_than_the_window(visit, width):
    with visit(viewport={"width": width, "height": 844}) as page:
        translate(page, "ab cd fe. " * 6)
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        first, second = (page.locator(".run").nth(n).bounding_box() for n in (0, 1))
        assert (first["y"] == second["y"]) == (width == 1400)


@pytest.mark.parametrize(
    ("scheme", "viewport"), [("light", {"width": 1400, "height": 900}), ("dark", PHONE)]
)
def test_axe_finds_no_grave_fault(visit, grave_faults, scheme, viewport):
    with visit(color_scheme=scheme, viewport=viewport, bypass_csp=True) as page:
        translate(page)
        light = page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert (light == "rgb(255, 255, 255)") == (scheme == "light")
        assert grave_faults(page) == []
