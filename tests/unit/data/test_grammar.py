"""The built-in grammar: hand-written translations, and properties of random derivations.

The German of the golden pairs and the ending tables below were written by hand, not printed by the
code under test.
"""

from __future__ import annotations

import dataclasses
import os
import random
import subprocess
import sys
from collections.abc import Iterator
from itertools import islice

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shapeshift.data.grammar import derive, generate, tree
from shapeshift.data.grammar import lexicon as lex
from shapeshift.data.grammar import linearise_english as english
from shapeshift.data.grammar import linearise_german as german
from shapeshift.data.grammar.nominals import Nominals
from shapeshift.data.grammar.tree import (
    Case,
    Clause,
    Coordination,
    Frame,
    Front,
    NounPhrase,
    Predicate,
    PrepositionalPhrase,
    RelativeClause,
    Role,
    Sentence,
    Subordinate,
    Tense,
)
from shapeshift.data.grammar.verbs import BE, VERBS
from shapeshift.errors import ShapeshiftError

PRESENT, PAST, PERFECT, FUTURE = Tense.PRESENT, Tense.PAST, Tense.PERFECT, Tense.FUTURE
HE, SHE, THEY, WE, I = lex.HE, lex.SHE, lex.THEY, lex.WE, lex.I  # noqa: E741
THE, A, NO, BARE, THIS, EVERY = lex.THE, lex.A, lex.NO, lex.BARE, lex.THIS, lex.EVERY
MY, HIS, HER, OUR, THEIR = lex.POSSESSIVES
TWO = lex.NUMERALS[0]
_, MUST, WANT, SHOULD, _ = lex.MODALS


def np(determiner, *words, plural=False, possessor=None, modifier=None) -> NounPhrase:
    """Build a noun phrase: np(THE, "old", "dog")."""
    *adjectives, head = words
    noun = next(noun for noun in lex.NOUNS if noun.singular == head)
    known = {adjective.english: adjective for adjective in lex.ADJECTIVES[noun.sense]}
    chosen = tuple(known[adjective] for adjective in adjectives)
    return NounPhrase(noun, plural, determiner, chosen, possessor, modifier)


def verb(name: str, frame: Frame = Frame.ACCUSATIVE) -> tree.Verb:
    return next(v for v in VERBS if f"{v.base} {v.particle}".strip() == name and v.frame is frame)


def says(subject, name, frame, tense=PRESENT, **parts) -> Clause:
    return Clause(subject, (Predicate(verb(name, frame), tense, **parts),))


def acc(subject, name, found, tense=PRESENT, **parts) -> Clause:
    return says(subject, name, Frame.ACCUSATIVE, tense, accusative=found, **parts)


def dat(subject, name, found, tense=PRESENT, **parts) -> Clause:
    return says(subject, name, Frame.DATIVE, tense, dative=found, **parts)


def does(subject, name, tense=PRESENT, **parts) -> Clause:
    return says(subject, name, Frame.INTRANSITIVE, tense, **parts)


def gives(subject, name, whom, what, tense=PRESENT, **parts) -> Clause:
    return says(subject, name, Frame.DITRANSITIVE, tense, dative=whom, accusative=what, **parts)


def oblique(subject, name, found, tense=PRESENT, **parts) -> Clause:
    entry = verb(name, Frame.OBLIQUE)
    phrase = None if found is None else PrepositionalPhrase(entry.preposition, found)
    return Clause(subject, (Predicate(entry, tense, oblique=phrase, **parts),))


def goes(subject, preposition, goal, tense=PRESENT, **parts) -> Clause:
    phrase = PrepositionalPhrase(preposition, goal)
    return says(subject, "go", Frame.DIRECTION, tense, oblique=phrase, **parts)


def is_(subject, adjective, tense=PRESENT, **parts) -> Clause:
    every = (a for adjectives in lex.ADJECTIVES.values() for a in adjectives)
    found = next(a for a in every if a.english == adjective)
    return Clause(subject, (Predicate(BE, tense, adjective=found, **parts),))


def that(subject, name, *clauses, tense=PRESENT, **parts) -> Clause:
    frame = Frame.DATIVE_CLAUSE if "dative" in parts else Frame.CLAUSE
    return says(subject, name, frame, tense, complement=Subordinate(lex.THAT, clauses), **parts)


def time(text: str) -> tree.Adverb:
    return next(adverb for adverb in (*lex.TIMES, *lex.FREQUENCIES) if adverb.english == text)


def within(found, preposition=lex.IN) -> PrepositionalPhrase:
    return PrepositionalPhrase(preposition, found)


def with_clause(clause: Clause, conjunction: str, inner: Clause, front=Front.SUBJECT) -> Clause:
    found = next(c for c in lex.ADVERBIALS if c.english == conjunction)
    return dataclasses.replace(clause, adverbial=Subordinate(found, (inner,)), front=front)


def fronted(clause: Clause, front: Front) -> Clause:
    return dataclasses.replace(clause, front=front)


def both(first: Clause, second: Clause) -> Clause:
    """Join the predicates of two clauses with the same subject."""
    return dataclasses.replace(first, predicates=(*first.predicates, *second.predicates))


def who(role: Role, clause: Clause) -> RelativeClause:
    return RelativeClause(role, clause)


def city(name: str) -> tree.ProperName:
    return next(city for city in lex.CITIES if city.english == name)


ANNA = next(name for name in lex.PERSON_NAMES if name.english == "Anna")
PETER = next(name for name in lex.PERSON_NAMES if name.english == "Peter")

GOLDEN = [
    # Gender, number, case; weak, mixed and strong endings.
    (does(np(THE, "old", "man"), "sleep"), "The old man sleeps.", "Der alte Mann schläft."),
    (
        acc(np(A, "young", "woman"), "look for", np(A, "small", "dog")),
        "A young woman looks for a small dog.",
        "Eine junge Frau sucht einen kleinen Hund.",
    ),
    (
        dat(np(MY, "small", "child"), "help", np(THE, "young", "boy")),
        "My small child helps the young boy.",
        "Mein kleines Kind hilft dem jungen Jungen.",
    ),
    (
        acc(np(TWO, "big", "dog", plural=True), "chase", np(BARE, "black", "cat", plural=True)),
        "Two big dogs chase black cats.",
        "Zwei große Hunde jagen schwarze Katzen.",
    ),
    (
        dat(WE, "thank", np(OUR, "friendly", "neighbour", plural=True), PAST),
        "We thanked our friendly neighbours.",
        "Wir dankten unseren freundlichen Nachbarn.",
    ),
    (
        acc(I, "know", np(THIS, "famous", "actor")),
        "I know this famous actor.",
        "Ich kenne diesen berühmten Schauspieler.",
    ),
    (
        acc(np(EVERY, "girl"), "buy", np(THE, "expensive", "dress")),
        "Every girl buys the expensive dress.",
        "Jedes Mädchen kauft das teure Kleid.",
    ),
    (
        acc(np(lex.ALL, "child", plural=True), "eat", np(lex.MANY, "fresh", "egg", plural=True)),
        "All children eat many fresh eggs.",
        "Alle Kinder essen viele frische Eier.",
    ),
    # Possessors.
    (
        acc(HE, "love", np(THE, "big", "dog", possessor=np(THE, "boy"))),
        "He loves the boy's big dog.",
        "Er liebt den großen Hund des Jungen.",
    ),
    (
        does(np(THE, "old", "dog", possessor=ANNA), "sleep"),
        "Anna's old dog sleeps.",
        "Annas alter Hund schläft.",
    ),
    (
        acc(SHE, "read", np(THE, "letter", plural=True, possessor=np(HER, "brother", plural=True))),
        "She reads her brothers' letters.",
        "Sie liest die Briefe ihrer Brüder.",
    ),
    # Separable prefixes in every tense.
    (
        acc(SHE, "open", np(THE, "window")),
        "She opens the window.",
        "Sie macht das Fenster auf.",
    ),
    (
        acc(THEY, "invite", np(THE, "student"), PERFECT),
        "They have invited the student.",
        "Sie haben den Studenten eingeladen.",
    ),
    (
        dat(np(THE, "girl", plural=True), "listen to", HE, FUTURE),
        "The girls will listen to him.",
        "Die Mädchen werden ihm zuhören.",
    ),
    (
        that(HE, "know", acc(SHE, "switch on", np(THE, "lamp"))),
        "He knows that she switches on the lamp.",
        "Er weiß, dass sie die Lampe einschaltet.",
    ),
    (
        does(PETER, "arrive", PERFECT, negated=True),
        "Peter has not arrived.",
        "Peter ist nicht angekommen.",
    ),
    # Two objects, prepositions, direction.
    (
        gives(np(THE, "mother"), "give", np(THE, "child"), np(A, "red", "ball")),
        "The mother gives the child a red ball.",
        "Die Mutter gibt dem Kind einen roten Ball.",
    ),
    (
        oblique(I, "wait", np(THE, "colleague"), place=within(np(THE, "park"))),
        "I wait for the colleague in the park.",
        "Ich warte im Park auf den Kollegen.",
    ),
    (
        goes(WE, lex.TO, np(THE, "old", "school"), PERFECT),
        "We have gone to the old school.",
        "Wir sind zur alten Schule gegangen.",
    ),
    (
        goes(ANNA, lex.TO_CITY, city("Munich"), PAST, negated=True),
        "Anna did not go to Munich.",
        "Anna ging nicht nach München.",
    ),
    (
        acc(
            HE, "buy", np(A, "hat"), PAST,
            beneficiary=PrepositionalPhrase(lex.FOR, np(HIS, "old", "uncle")),
        ),
        "He bought a hat for his old uncle.",
        "Er kaufte einen Hut für seinen alten Onkel.",
    ),
    # nicht and kein, modals, adverbs.
    (
        acc(I, "have", np(A, "new", "car"), negated=True),
        "I do not have a new car.",
        "Ich habe kein neues Auto.",
    ),
    (
        acc(SHE, "see", np(THE, "bear"), PAST, negated=True, time=time("today")),
        "She did not see the bear today.",
        "Sie sah den Bären heute nicht.",
    ),
    (
        acc(np(THE, "farmer"), "watch", np(THE, "cow"), modal=MUST, negated=True),
        "The farmer does not have to watch the cow.",
        "Der Bauer muss die Kuh nicht beobachten.",
    ),
    (
        acc(np(THE, "tourist", plural=True), "visit", np(THE, "castle"), PAST, modal=WANT),
        "The tourists wanted to visit the castle.",
        "Die Touristen wollten das Schloss besuchen.",
    ),
    (
        is_(np(NO, "hungry", "lion"), "tired", frequency=time("always")),
        "No hungry lion is always tired.",
        "Kein hungriger Löwe ist immer müde.",
    ),
    # Verb second.
    (
        fronted(acc(np(THE, "doctor"), "call", HE, PAST, time=time("yesterday")), Front.TIME),
        "Yesterday, the doctor called him.",
        "Gestern rief ihn der Arzt an.",
    ),
    (
        fronted(does(np(BARE, "bird", plural=True), "sing", place=within(np(A, "dark", "forest"))),
                Front.PLACE),
        "In a dark forest, birds sing.",
        "In einem dunklen Wald singen Vögel.",
    ),
    (
        with_clause(does(I, "work"), "because", does(SHE, "sleep"), Front.ADVERBIAL),
        "Because she sleeps, I work.",
        "Weil sie schläft, arbeite ich.",
    ),
    (
        with_clause(does(HE, "laugh", PAST), "when", does(THEY, "dance", PAST)),
        "He laughed when they danced.",
        "Er lachte, als sie tanzten.",
    ),
    (
        with_clause(does(HE, "laugh"), "when", does(THEY, "dance")),
        "He laughs when they dance.",
        "Er lacht, wenn sie tanzen.",
    ),
    # Relative clauses.
    (
        does(np(THE, "man", modifier=who(Role.DATIVE, dat(SHE, "help", None))), "laugh"),
        "The man whom she helps laughs.",
        "Der Mann, dem sie hilft, lacht.",
    ),
    (
        acc(
            HE, "see",
            np(THE, "child", plural=True, modifier=who(Role.OBLIQUE, oblique(I, "play", None))),
            PERFECT,
        ),
        "He has seen the children with whom I play.",
        "Er hat die Kinder gesehen, mit denen ich spiele.",
    ),
    (
        does(
            np(THE, "woman", modifier=who(Role.POSSESSOR, does(np(BARE, "old", "dog"), "sleep"))),
            "cry",
        ),
        "The woman whose old dog sleeps cries.",
        "Die Frau, deren alter Hund schläft, weint.",
    ),
    (
        acc(
            I, "read",
            np(
                THE, "book",
                modifier=who(Role.ACCUSATIVE, acc(np(THE, "girl"), "write", None, PERFECT)),
            ),
        ),
        "I read the book that the girl has written.",
        "Ich lese das Buch, das das Mädchen geschrieben hat.",
    ),
    # Coordination and nesting.
    (
        both(acc(HE, "buy", np(A, "apple")), does(HE, "sing")),
        "He buys an apple and sings.",
        "Er kauft einen Apfel und singt.",
    ),
    (
        oblique(
            Coordination((ANNA, np(HER, "sister"))), "think",
            Coordination((np(THE, "king"), np(THE, "queen"), np(THE, "rabbit"))),
        ),
        "Anna and her sister think of the king, the queen and the rabbit.",
        "Anna und ihre Schwester denken an den König, die Königin und den Hasen.",
    ),
    (
        that(
            np(THE, "teacher"), "tell", does(HE, "work"), does(SHE, "sleep"),
            dative=np(THE, "student", plural=True), tense=PRESENT,
        ),
        "The teacher tells the students that he works and that she sleeps.",
        "Der Lehrer erzählt den Studenten, dass er arbeitet und dass sie schläft.",
    ),
    (
        that(
            ANNA, "say",
            with_clause(
                that(PETER, "believe", acc(HE, "fetch", np(THE, "guest"), modal=SHOULD)),
                "although", is_(HE, "sick"),
            ),
        ),
        "Anna says that Peter believes that he should fetch the guest although he is sick.",
        "Anna sagt, dass Peter glaubt, dass er den Gast abholen sollte, obwohl er krank ist.",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("clause", "english_text", "german_text"), GOLDEN)
def test_golden_pairs(clause: Clause, english_text: str, german_text: str):
    sentence = Sentence((clause,))
    assert english(sentence) == english_text
    assert german(sentence) == german_text


def test_main_clauses_are_joined_by_commas():
    sleeps = with_clause(does(HE, "sleep"), "because", does(SHE, "work"), Front.ADVERBIAL)
    sentence = Sentence((does(I, "cry"), sleeps), (lex.AND,))
    assert english(sentence) == "I cry, and because she works, he sleeps."
    assert german(sentence) == "Ich weine, und weil sie arbeitet, schläft er."


@pytest.mark.parametrize(
    ("noun", "singular", "plural"),
    [
        ("boy", "Junge Jungen Jungen Jungen", "Jungen Jungen Jungen Jungen"),
        ("bear", "Bär Bären Bären Bären", "Bären Bären Bären Bären"),
        ("farmer", "Bauer Bauern Bauern Bauern", "Bauern Bauern Bauern Bauern"),
        ("apple", "Apfel Apfel Apfel Apfels", "Äpfel Äpfel Äpfeln Äpfel"),
        ("mother", "Mutter Mutter Mutter Mutter", "Mütter Mütter Müttern Mütter"),
        ("car", "Auto Auto Auto Autos", "Autos Autos Autos Autos"),
        ("house", "Haus Haus Haus Hauses", "Häuser Häuser Häusern Häuser"),
        ("garden", "Garten Garten Garten Gartens", "Gärten Gärten Gärten Gärten"),
    ],
)
def test_noun_paradigms(noun: str, singular: str, plural: str):
    forms = np(THE, noun).noun.forms
    assert [" ".join(row) for row in forms] == [singular, plural]


# Independent tables: nominative, accusative, dative, genitive.
AFTER_DER = {"m": "e en en en", "f": "e e en en", "n": "e e en en", "p": "en en en en"}
AFTER_EIN = {"m": "er en en en", "f": "e e en en", "n": "es es en en", "p": "en en en en"}
AFTER_NOTHING = {"m": "er en em en", "f": "e e er er", "n": "es es em en", "p": "e e en er"}
EIN = {"m": " en em es", "f": "e e er er", "n": "  em es", "p": "e e en er"}
DER_LIKE = {"the", "this", "these", "every", "all"}
EIN_LIKE = {"a", "no", "my", "his", "her", "our", "their"}


def nodes(node: object) -> Iterator[object]:
    """Yield every dataclass of a derivation, words excepted."""
    yield node
    if dataclasses.is_dataclass(node) and not isinstance(node, tree.Verb | tree.Noun):
        for field in dataclasses.fields(node):
            value = getattr(node, field.name)
            for child in value if isinstance(value, tuple) else (value,):
                if dataclasses.is_dataclass(child):
                    yield from nodes(child)


def simple_phrases(sentence: Sentence) -> Iterator[tuple[NounPhrase, Case]]:
    """Yield the noun phrases whose case their role tells, not those that kein may change."""
    for node in nodes(sentence):
        found: list[tuple[object, Case]] = []
        match node:
            case Clause():
                found = [(node.subject, Case.NOMINATIVE)]
            case Predicate() if not node.negated:
                found = [(node.accusative, Case.ACCUSATIVE), (node.dative, Case.DATIVE)]
            case PrepositionalPhrase():
                found = [(node.object, node.preposition.case)]
        for nominal, case in found:
            items = nominal.items if isinstance(nominal, Coordination) else (nominal,)
            yield from ((item, case) for item in items if isinstance(item, NounPhrase))


def expected_phrase(phrase: NounPhrase, case: Case) -> str:
    """Decline adjectives and noun by the tables above, with the article where it is der or ein."""
    column = "p" if phrase.plural else "mfn"[phrase.noun.gender]
    word = phrase.determiner.english[phrase.plural]
    if isinstance(phrase.possessor, tree.ProperName) or word not in DER_LIKE | EIN_LIKE:
        table = AFTER_NOTHING
    else:
        table = AFTER_EIN if word in EIN_LIKE and phrase.possessor is None else AFTER_DER
    ending = table[column].split(" ")[case]
    words = [adjective.stem + ending for adjective in phrase.adjectives]
    words.append(phrase.noun.forms[phrase.plural][case])
    if phrase.possessor is None and word == "a":
        words.insert(0, "ein" + EIN[column].split(" ")[case])
    return " ".join(words)


sentences = st.builds(
    lambda seed, size: derive(random.Random(seed), size),
    st.integers(0, 2**32),
    st.integers(3, 60),
)


@settings(max_examples=200, deadline=None)
@given(sentences)
def test_adjectives_and_nouns_agree(sentence: Sentence):
    text = german(sentence)
    spaced = f" {text[0].lower()}{text[1:]} ".replace(",", " ").replace(".", " ")
    lowered = " ".join(spaced.lower().split())
    for phrase, case in simple_phrases(sentence):
        assert f" {expected_phrase(phrase, case).lower()} " in f" {lowered} "


def finite_form(predicate: Predicate, subject: object) -> tuple[str, str]:
    """Return (finite verb, prefix) by person and number, from the principal parts."""
    plural = isinstance(subject, Coordination) or getattr(subject, "plural", False)
    index = 2 if plural else 0 if subject is lex.I else 1
    if predicate.modal is not None:
        return predicate.modal.german[predicate.tense][index], ""
    if predicate.tense is PERFECT:
        haben, sein = ("habe", "hat", "haben"), ("bin", "ist", "sind")
        return (sein if predicate.verb.with_sein else haben)[index], ""
    if predicate.tense is FUTURE:
        return ("werde", "wird", "werden")[index], ""
    if predicate.tense is PAST:
        return predicate.verb.german_past[index == 2], predicate.verb.prefix
    return predicate.verb.german_present[index], predicate.verb.prefix


def german_subject(subject: object) -> str:
    sentence = german(Sentence((does(subject, "sleep", PAST),)))
    return sentence.rsplit(" ", 1)[0]


@settings(max_examples=200, deadline=None)
@given(sentences)
def test_finite_verb_comes_second_in_main_clauses(sentence: Sentence):
    for clause in sentence.clauses:
        text = german(Sentence((clause,)))
        match clause.front:
            case Front.SUBJECT:
                first = german_subject(clause.subject)
            case Front.TIME:
                first = clause.predicates[0].time.german
            case Front.PLACE:
                place = clause.predicates[0].place
                text_behind = german(Sentence((does(HE, "sleep", PAST, place=place),)))
                first = text_behind.removeprefix("Er schlief ").removesuffix(".")
            case Front.ADVERBIAL:
                behind = dataclasses.replace(does(HE, "sleep"), adverbial=clause.adverbial)
                text_behind = german(Sentence((behind,)))
                first = text_behind.removeprefix("Er schläft, ").removesuffix(".")
        rest = text[len(first) :].lstrip(" ,")
        assert text.lower().startswith(first.lower())
        finite, _ = finite_form(clause.predicates[0], clause.subject)
        assert rest.rstrip(".").replace(",", "").split()[0] == finite


@settings(max_examples=200, deadline=None)
@given(sentences)
def test_finite_verb_comes_last_in_subordinate_clauses(sentence: Sentence):
    """The prefix stands before it, in one word."""
    for node in nodes(sentence):
        if not isinstance(node, Subordinate):
            continue
        for clause in node.clauses:
            # What follows the verbs is taken away: clauses, and relative clauses of objects.
            last = dataclasses.replace(clause.predicates[-1], complement=None)
            for role in ("dative", "accusative"):
                if isinstance(found := getattr(last, role), NounPhrase):
                    setattr(last, role, dataclasses.replace(found, modifier=None))
            for role in ("oblique", "place", "beneficiary"):
                if (phrase := getattr(last, role)) and isinstance(phrase.object, NounPhrase):
                    inner = dataclasses.replace(phrase.object, modifier=None)
                    setattr(last, role, dataclasses.replace(phrase, object=inner))
            bare = Clause(clause.subject, (*clause.predicates[:-1], last))
            text = german(Sentence((that(HE, "know", bare),)))
            finite, prefix = finite_form(last, clause.subject)
            assert text.endswith(f" {prefix}{finite}.")


@settings(max_examples=200, deadline=None)
@given(sentences)
def test_relative_pronouns_agree_with_their_noun(sentence: Sentence):
    pronouns = {
        Role.SUBJECT: {"m": "der", "f": "die", "n": "das", "p": "die"},
        Role.ACCUSATIVE: {"m": "den", "f": "die", "n": "das", "p": "die"},
        Role.DATIVE: {"m": "dem", "f": "der", "n": "dem", "p": "denen"},
        Role.POSSESSOR: {"m": "dessen", "f": "deren", "n": "dessen", "p": "deren"},
    }
    for node in nodes(sentence):
        if not (isinstance(node, NounPhrase) and isinstance(node.modifier, RelativeClause)):
            continue
        role = node.modifier.role
        if role not in pronouns:
            continue
        column = "p" if node.plural else "mfn"[node.noun.gender]
        text = german(Sentence((does(node, "sleep", PAST),)))
        head = german(Sentence((does(dataclasses.replace(node, modifier=None), "sleep", PAST),)))
        after = text[len(head.rsplit(" ", 1)[0]) :]
        assert after.startswith(f", {pronouns[role][column]} ")


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 2**32), st.integers(3, 60))
def test_derivations_have_exactly_the_words_asked_for(seed: int, size: int):
    assert len(english(derive(random.Random(seed), size)).split()) == size


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32), st.integers(3, 40), st.integers(0, 40))
def test_lengths_stay_within_bounds(seed: int, fewest: int, more: int):
    pairs = generate(20, seed=seed, min_words=fewest, max_words=fewest + more)
    lengths = [len(source.split()) for source, _ in pairs]
    assert len(lengths) == 20
    assert all(fewest <= length <= fewest + more for length in lengths)


def test_lengths_spread_over_the_range():
    lengths = [len(source.split()) for source, _ in generate(3000, seed=1)]
    short = sum(length < 15 for length in lengths) / len(lengths)
    assert 0.45 < short < 0.55
    assert 0.04 < sum(length > 45 for length in lengths) / len(lengths) < 0.12


def test_sentences_are_ordinary_text():
    for pair in generate(2000, seed=2):
        for text in pair:
            assert text[0].isupper()
            assert text.endswith(".")
            assert ",," not in text
            assert "  " not in text
            assert " ," not in text
            assert ",." not in text


def test_a_longer_run_starts_with_the_shorter_one():
    assert list(islice(generate(500, seed=3), 50)) == list(generate(50, seed=3))
    assert list(generate(50, seed=3)) != list(generate(50, seed=4))


def test_pairs_do_not_depend_on_the_hash_seed():
    program = (
        "from shapeshift.data.grammar import generate\n"
        "for pair in generate(300, seed=5): print(ascii(pair))"
    )
    outputs = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for hash_seed in ("0", "1", "77")
    }
    assert len(outputs) == 1
    assert outputs.pop().count("\n") == 300


def test_german_is_a_function_of_english():
    translations: dict[str, str] = {}
    for source, target in generate(50_000, seed=6):
        assert translations.setdefault(source, target) == target


def test_german_is_a_function_of_english_with_hardly_any_words(monkeypatch: pytest.MonkeyPatch):
    """With the first word of every class only, the same English is derived in many ways: what a
    modifier belongs to must never be open."""
    pick = Nominals.pick

    def pick_first(self, choices):
        structure = isinstance(choices[0], Frame | tree.Sense | Role)
        return pick(self, choices) if structure else choices[0]

    monkeypatch.setattr(Nominals, "pick", pick_first)
    translations: dict[str, str] = {}
    rng = random.Random(3)
    total = 60_000
    for number in range(total):
        sentence = derive(rng, 3 + number % 10)
        source, target = english(sentence), german(sentence)
        assert translations.setdefault(source, target) == target
    assert len(translations) < 0.7 * total  # so that there was something to find


def test_lexicon_is_large_and_unambiguous():
    assert len(lex.NOUNS) >= 80
    assert len({v.infinitive for v in VERBS}) >= 40
    adjectives = {a.english: a.predicative for group in lex.ADJECTIVES.values() for a in group}
    assert len(adjectives) >= 40
    assert len(set(adjectives.values())) == len(adjectives)
    for forms in ({n.singular for n in lex.NOUNS}, {n.forms[0][0] for n in lex.NOUNS}):
        assert len(forms) == len(lex.NOUNS)
    assert all(n.singular != n.plural for n in lex.NOUNS)
    keys = [(v.base, v.particle, v.frame, v.preposition) for v in VERBS]
    assert len(set(keys)) == len(keys)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"num_pairs": -1, "seed": 0}, "num_pairs"),
        ({"num_pairs": 1, "seed": -1}, "seed"),
        ({"num_pairs": 1, "seed": 0, "min_words": 2}, "min_words"),
        ({"num_pairs": 1, "seed": 0, "min_words": 9, "max_words": 8}, "max_words"),
    ],
)
def test_bad_arguments_are_refused_at_once(arguments: dict[str, int], message: str):
    with pytest.raises(ShapeshiftError, match=message):
        generate(**arguments)
