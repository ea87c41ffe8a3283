"""The report in Chromium, by the extra `browser` and a browser of the system's."""

from functools import partial

import pytest

from shapeshift.study.report.collect import collect
from shapeshift.study.report.page import page as report_page

from ..unit.study.report.written import write_reproduced

PHONE = {"width": 360, "height": 740}


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    """The page on the disk."""
    directory = write_reproduced(tmp_path_factory.mktemp("reproduced"))
    path = directory / "report.html"
    path.write_text(report_page(collect(directory), directory), "utf-8")
    return path.as_uri()


@pytest.fixture
def visit(open_page, address):
    return partial(open_page, address)


def column(page, number, table="#study-shape-table2-tiny .ours table"):
    return page.locator(f"{table} tbody tr > :nth-child({number})").all_inner_texts()


def test_sorting_by_mouse_and_keyboard(visit):
    with visit() as page:
        headers = page.locator("#study-shape-table2-tiny .ours thead th")
        before = column(page, 3)
        shown = []
        for order in ("ascending", "descending", None):
            headers.nth(2).get_by_role("button").click()
            assert headers.nth(2).get_attribute("aria-sort") == order
            shown.append(column(page, 3))
        up = [float(text.split()[0]) for text in shown[0]]
        assert up == sorted(up)
        assert shown[0] != sorted(shown[0])  # as numbers, not as words
        assert [float(text.split()[0]) for text in shown[1]] == up[::-1]
        assert shown[2] == before

        headers.nth(0).get_by_role("button").focus()
        page.keyboard.press("Enter")
        page.keyboard.press("Tab")
        assert column(page, 1) == ["extrapolate"] * 3 + ["vanilla"] * 3
        page.keyboard.press("Space")
        assert column(page, 2) == ["ape", "ape", "rpe", "rpe", "shape", "shape"]
        assert page.locator("[aria-sort]").count() == 1


def test_verdicts_are_sorted_by_weight_and_missing_fields_come_last(visit):
    with visit() as page:
        page.locator("#findings thead button", has_text="Verdict").click()
        verdicts = [text.split(maxsplit=1)[1] for text in column(page, 2, "#findings table")]
        assert verdicts == ["supported", "contradicted", "inconclusive", "inconclusive"]
        button = page.locator("#studies thead button", has_text="Findings")
        for _ in range(2):
            button.click()
            assert column(page, 4, "#studies table")[-1] == "–"


@pytest.mark.parametrize("width", [320, 1600])
def test_the_page_is_never_wider_than_the_window(visit, width):
    with visit(viewport={"width": width, "height": 800}) as page:
        page.evaluate("document.querySelectorAll('details').forEach(d => { d.open = true; })")
        assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_print_without_scripts_shows_everything_and_no_controls(browser, address):
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(address)
    assert page.locator("nav a").first.is_visible()
    page.emulate_media(media="print")
    for hidden in ("nav", ".files"):
        assert not page.locator(hidden).first.is_visible()
    for shown in (".figure details table", ".unfinished li"):
        assert page.locator(shown).first.is_visible(), shown
    context.close()


@pytest.mark.parametrize(
    ("scheme", "viewport"), [("light", {"width": 1400, "height": 900}), ("dark", PHONE)]
)
def test_axe_finds_no_grave_fault(visit, grave_faults, scheme, viewport):
    with visit(color_scheme=scheme, viewport=viewport) as page:
        page.evaluate("document.querySelectorAll('details').forEach(d => { d.open = true; })")
        assert grave_faults(page) == []
