"""The report in Chromium, by the extra `browser` and a browser of the system's."""

from functools import partial

import pytest

from shapeshift.report.collect import collect
from shapeshift.report.page import page as report_page

from ..unit.report.written import write_reproduced  # noqa: TID252 (`tests` is no package)

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


def column(page, number, table="#item-shape-table2-tiny .ours table"):
    return page.locator(f"{table} tbody tr > :nth-child({number})").all_inner_texts()


def focused(page):
    return page.evaluate("document.activeElement.innerText")


def wait_until(page, expression):
    """Wait as `page.wait_for_function` does, which the page's content security policy forbids."""
    for _ in range(100):
        if page.evaluate(expression):
            return
        page.wait_for_timeout(50)
    raise AssertionError(f"in five seconds it did not become true: {expression}")


def test_sorting_by_mouse_and_keyboard(visit):
    with visit() as page:
        page.keyboard.press("Tab")
        assert focused(page) == "Skip to the content"
        header = page.locator("#item-shape-table2-tiny .ours thead th").nth(2)
        before = column(page, 3)
        header.get_by_role("button").click()
        assert header.get_attribute("aria-sort") == "ascending"
        assert column(page, 3) != sorted(column(page, 3))  # as numbers, not as words
        up = [float(text.split()[0]) for text in column(page, 3)]
        assert up == sorted(up)
        header.get_by_role("button").click()
        assert header.get_attribute("aria-sort") == "descending"
        assert [float(text.split()[0]) for text in column(page, 3)] == up[::-1]
        header.get_by_role("button").click()
        assert header.get_attribute("aria-sort") is None
        assert column(page, 3) == before

        page.locator("#item-shape-table2-tiny .ours thead button").nth(0).focus()
        page.keyboard.press("Enter")
        page.keyboard.press("Tab")
        assert focused(page) == "position"
        assert column(page, 1) == ["extrapolate"] * 3 + ["vanilla"] * 3
        page.keyboard.press("Space")
        assert column(page, 2) == ["ape", "ape", "rpe", "rpe", "shape", "shape"]
        assert page.locator("[aria-sort]").count() == 1


def test_verdicts_are_sorted_by_weight_and_missing_fields_come_last(visit):
    with visit() as page:
        page.locator("#findings thead button", has_text="Verdict").click()
        verdicts = [text.split(maxsplit=1)[1] for text in column(page, 2, "#findings table")]
        assert verdicts == ["supported", "contradicted", "inconclusive", "inconclusive"]
        button = page.locator("#items thead button", has_text="Findings")
        for _ in range(2):
            button.click()
            assert column(page, 4, "#items table")[-1] == "–"


@pytest.mark.parametrize("width", [320, 768, 1600])
def test_the_page_is_never_wider_than_the_window(visit, width):
    with visit(viewport={"width": width, "height": 800}) as page:
        page.evaluate("document.querySelectorAll('details').forEach(d => { d.open = true; })")
        assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_a_wide_table_scrolls_in_its_frame_by_keyboard(visit):
    with visit(viewport=PHONE) as page:
        frame = page.locator("#item-outside-table10-tiny .scroll")
        frame.focus()
        page.keyboard.press("ArrowRight")
        wait_until(page, "document.activeElement.scrollLeft > 0")
        narrow = page.locator("#findings .scroll")
        assert narrow.get_attribute("tabindex") is None


def test_the_contents_fold_on_a_phone(visit):
    with visit(viewport=PHONE) as page:
        contents = page.locator("nav .toc")
        assert contents.get_attribute("open") is None
        contents.locator("summary").press("Enter")
        contents.get_by_role("link", name="Figure 3").click()
        assert page.url.endswith("#item-shape-figure3-small")
    with visit(viewport={"width": 1400, "height": 800}) as page:
        page.mouse.wheel(0, 2000)
        wait_until(page, "scrollY > 1000")
        assert page.locator("nav").bounding_box()["y"] == 0  # stays in view


def test_ours_stands_beside_the_papers_where_there_is_room(visit):
    for width, beside in ((1400, True), (360, False)):
        with visit(viewport={"width": width, "height": 800}) as page:
            blocks = page.locator("#item-shape-table2-tiny .block")
            ours, paper = (blocks.nth(place).bounding_box() for place in (0, 1))
            assert (paper["y"] == ours["y"]) == beside


@pytest.mark.parametrize("scripts", [True, False])
def test_print_shows_everything_and_no_controls(browser, address, scripts):
    context = browser.new_context(java_script_enabled=scripts)
    page = context.new_page()
    page.goto(address)
    assert page.locator("nav a").first.is_visible()
    page.emulate_media(media="print")
    for hidden in ("nav", ".files"):
        assert not page.locator(hidden).first.is_visible()
    for shown in (".figure details table", ".unfinished li"):
        assert page.locator(shown).first.is_visible(), shown
    page.set_viewport_size({"width": 690, "height": 1000})  # A4 without its margins
    frames = page.locator(".scroll")
    for place in range(frames.count()):
        box = frames.nth(place).locator("table, img").first.bounding_box()
        assert box["x"] + box["width"] <= 690
    context.close()


@pytest.mark.parametrize(
    ("scheme", "viewport"), [("light", {"width": 1400, "height": 900}), ("dark", PHONE)]
)
def test_axe_finds_no_grave_fault(visit, grave_faults, scheme, viewport):
    with visit(color_scheme=scheme, viewport=viewport) as page:
        page.evaluate("document.querySelectorAll('details').forEach(d => { d.open = true; })")
        assert grave_faults(page) == []
