"""Where long lines are cut."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shapeshift._system.errors import ShapeshiftError
from shapeshift.decoding.splitting import split_text


def letters(texts: Sequence[str]) -> list[int]:
    """One subword a letter; spaces and separators have none."""
    return [len(text.replace(" <sep> ", "").replace(" ", "")) for text in texts]


def cut(text: str, limit: int, **options: bool) -> list[str]:
    return [piece for piece, _ in split_text(text, limit, letters, **options)]


@pytest.mark.parametrize(
    ("text", "limit", "pieces"),
    [
        ("One two. Three four, five.", 12, ["One two.", "Three four,", "five."]),
        ("A b. C d. E f. G", 6, ["A b. C d.", "E f. G"]),
        ('He said: "No." She left.', 14, ['He said: "No."', "She left."]),
        ("aaaa  bbbb\u2028cccc", 8, ["aaaa bbbb", "cccc"]),
        ("abcdefgh ij", 3, ["ab", "cd", "ef", "gh", "ij"]),
        ("ab cdefgh", 4, ["ab", "cde", "fgh"]),
    ],
)
def test_pieces_end_where_the_text_invites_it(text, limit, pieces):
    assert cut(text, limit) == pieces


def test_parts_of_a_joined_text_are_cut_apart_first():
    text = "a. b. <sep> c d <sep> eeee ffff"
    pieces = split_text(text, 6, letters, joined=True)
    assert pieces[:-1] == [("a. b.", " <sep> "), ("c d", " <sep> "), ("eeee", " ")]
    assert pieces[-1][0] == "ffff"
    whole = split_text("aa <sep> b", 2, lambda texts: [len(text.split()) for text in texts])
    assert [piece for piece, _ in whole] == ["aa <sep>", "b"]  # elsewhere it is text


def test_a_character_that_is_too_long_cannot_be_cut():
    with pytest.raises(ShapeshiftError, match="single character has more than 1 subwords"):
        split_text("ab", 1, lambda texts: [2 * len(text) for text in texts])


def test_parts_of_a_word_are_not_joined_to_more_than_the_limit():
    subwords = {"abcd": 3, "ab": 1, "cd": 1, "e": 1}  # merging b and c first leaves a, bc and d

    def count(texts):
        return [sum(subwords[word] for word in text.split()) for text in texts]

    assert [piece for piece, _ in split_text("e abcd e", 2, count)] == ["e ab", "cd e"]
    assert [piece for piece, _ in split_text("abcd", 2, count)] == ["ab", "cd"]


@given(st.text("ab., \u3000。", max_size=60), st.integers(1, 9))
def test_nothing_is_lost_and_everything_fits(text, limit):
    pieces = split_text(text, limit, letters)
    texts = [piece for piece, _ in pieces]
    joined = "".join(piece + joiner for piece, joiner in pieces[:-1]) + texts[-1]
    assert joined == " ".join(text.split())
    assert max(letters(texts)) <= limit
