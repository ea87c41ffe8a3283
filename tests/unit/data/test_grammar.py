"""The built-in grammar: translations that were checked by hand, and properties of all."""

from __future__ import annotations

import random
from itertools import islice

from hypothesis import given, settings
from hypothesis import strategies as st

from shapeshift.data.grammar import generate
from shapeshift.data.grammar.derivation import Derivation

# A speaker of German checked these. All are among the first 27,100 pairs of seed 6.
CHECKED = """
They have kissed my old rich girl. | Sie haben mein altes reiches Mädchen geküsst.
Every healthy man went to the new library. | Jeder gesunde Mann ging zur neuen Bibliothek.
A queen came to Simon's modern school when Maria prayed. | \
Eine Königin kam zu Simons moderner Schule, als Maria betete.
A friend brought along these teachers' banana. | Ein Freund brachte die Banane dieser Lehrer mit.
Clara knows that Tim arrives. | Clara weiß, dass Tim ankommt.
The mother gives her the suitcase. | Die Mutter gibt ihr den Koffer.
On Sunday, their tourist did not go to Hamburg. | Am Sonntag ging ihr Tourist nicht nach Hamburg.
Today, Eva has not answered a boy. | Heute hat Eva keinem Jungen geantwortet.
If I cry, the sick man sings. | Wenn ich weine, singt der kranke Mann.
He has watched the actor whom Laura finds. | Er hat den Schauspieler beobachtet, den Laura findet.
I should forget that a singer opens the window now. | \
Ich sollte vergessen, dass eine Sängerin jetzt das Fenster aufmacht.
"""


def test_german_is_a_function_of_english_and_as_checked():
    translations: dict[str, str] = {}
    for source, target in generate(27_100, seed=6):
        assert translations.setdefault(source, target) == target
    for line in CHECKED.strip().splitlines():
        source, target = line.split(" | ")
        assert translations[source] == target


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 2**32), st.integers(3, 60))
def test_derivations_have_exactly_the_words_asked_for(seed: int, size: int):
    sentence = Derivation(random.Random(seed)).sentence(size)
    assert len(sentence.in_english().split()) == size
    ((source, _),) = generate(1, seed=seed, min_words=size, max_words=size + 5)
    assert size <= len(source.split()) <= size + 5


def test_a_longer_run_starts_with_the_shorter_one():
    assert list(islice(generate(500, seed=3), 50)) == list(generate(50, seed=3))
    assert list(generate(50, seed=3)) != list(generate(50, seed=4))
