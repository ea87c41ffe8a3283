from shapeshift.report.markup import Anchors, Html, element, joined


def test_text_is_escaped_and_markup_is_not():
    inner = element("b", "1 < 2 & 'so'")
    assert inner == "<b>1 &lt; 2 &amp; &#x27;so&#x27;</b>"
    assert element("p", inner, None, " > 0") == f"<p>{inner} &gt; 0</p>"
    assert joined(["<", Html("<br>")], " & ") == "&lt; &amp; <br>"


def test_attributes_are_escaped_left_out_or_bare():
    made = element("td", class_='a"b', data_value=3, open=True, hidden=False, title=None)
    assert made == '<td class="a&quot;b" data-value="3" open></td>'
    assert element("meta", charset="utf-8") == '<meta charset="utf-8">'


def test_no_two_places_have_one_name():
    anchors = Anchors()
    given = [anchors.new(*words) for words in (("a", "b"), ("A b",), ("a-b",), ("a b 2",), ("–",))]
    assert given[:2] == ["a-b", "a-b-2"]
    assert len(set(given)) == len(given)
    assert all(given)
