import pytest

from shapeshift.errors import ShapeshiftError
from shapeshift.report.svg import inline_svg

from .reading import read

HEAD = '<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink"'


def inlined(tmp_path, content, root=""):
    path = tmp_path / "figure.svg"
    path.write_text(f"<?xml version='1.0'?>\n{HEAD} {root}>{content}</svg>")
    return inline_svg(path, "fig", "A title", 'What is "seen"')


def test_names_and_references_get_the_prefix(tmp_path):
    made = read(
        inlined(
            tmp_path,
            '<defs><clipPath id="clip"><path id="dot" d="M 0 0"/></clipPath></defs>'
            '<g clip-path="url(#clip)" style="fill: url(\'#clip\')"><use xlink:href="#dot"/></g>',
        )
    )
    assert made.one("path").attributes["id"] == "fig-dot"
    assert made.one("use").attributes["href"] == "#fig-dot"
    assert made.one("g").attributes["clip-path"] == "url(#fig-clip)"
    assert made.one("g").attributes["style"] == "fill: url(#fig-clip)"


def test_it_is_one_image_with_a_name(tmp_path):
    svg = read(inlined(tmp_path, "<path d='M 0 0'/>", "viewBox='0 0 9 9'")).one("svg")
    assert (svg.attributes["role"], svg.attributes["aria-label"]) == ("img", 'What is "seen"')
    assert svg.attributes["viewbox"] == "0 0 9 9"
    assert svg.one("title").text == "A title"


def test_its_own_width_is_for_the_page_to_scale(tmp_path):
    svg = read(inlined(tmp_path, "", "width='453.6pt' height='9pt'")).one("svg")
    assert svg.attributes["style"].endswith("; --width: 453.6pt")
    assert "width" not in svg.attributes
    assert "height" not in svg.attributes
    other = read(inlined(tmp_path, "", "width='1pt; color: red'")).one("svg")
    assert "red" not in other.attributes["style"]


@pytest.mark.parametrize(
    "content",
    [
        "<script>alert(1)</script>",
        "<style>@import 'http://example.org/a.css'; * {display: none}</style>",
        "<foreignObject><p xmlns='http://www.w3.org/1999/xhtml'>alert</p></foreignObject>",
        "<g onclick='alert(1)' OnLoad='alert(1)'/>",
        "<a xlink:href='http://example.org/'><path d='M 0 0'/></a>",
        "<image xlink:href='http://example.org/a.png'/>",
        "<image href='data:image/svg+xml;base64,alert'/>",
        "<use href='javascript:alert(1)'/>",
        "<path style='fill: url(http://example.org/a.svg#b)'/>",
        "<!-- alert --><metadata><a>example.org</a></metadata>",
    ],
)
def test_what_could_run_or_load_is_left_out(tmp_path, content):
    made = inlined(tmp_path, content)
    for word in ("alert", "example.org", "display", "onclick", "http:"):
        assert word not in made.replace("http://www.w3.org", "")


def test_a_raster_image_is_kept(tmp_path):
    made = read(inlined(tmp_path, '<image xlink:href="data:image/png;base64,&#10;iVBO"/>'))
    assert made.one("image").attributes["href"].startswith("data:image/png")


def test_deep_nesting_is_one_sentence(tmp_path):
    with pytest.raises(ShapeshiftError, match="nested too deeply"):
        inlined(tmp_path, "<g>" * 100_000 + "</g>" * 100_000)


@pytest.mark.parametrize("content", ["<svg", "<html/>", ""])
def test_another_file_is_named(tmp_path, content):
    path = tmp_path / "bad.svg"
    path.write_text(content)
    with pytest.raises(ShapeshiftError, match=r"bad\.svg: not an SVG file"):
        inline_svg(path, "fig", "", "")
