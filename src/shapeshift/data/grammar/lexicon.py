"""The words of the built-in grammar.

Written for this project. Each English word has one German rendering in its context, so that the
German sentence is a function of the English one. Tables next to this file, one word a line:

- `nouns.tsv`: semantic class; English singular, plural where it is irregular; German article,
  nominative, genitive (masculine and neuter only), plural.
- `adjectives.tsv`: rank (opinion, size, age, state, colour), classes of nouns, English, German, and
  the German stem where endings change it (hoch, hoh-).
- `verbs.tsv`: frame; classes of subjects; classes of objects, or nouns by their English; English
  base, past, participle where it differs from the past, and what follows the verb; German
  infinitive (`auf|machen`: separable prefix), third person (or ich, er and wir, as in
  `modals.tsv`), preterite, participle (`ist gegangen`: perfect with sein); the preposition that the
  verb governs (English, German and case; where there is none, the accusative alone); marks. `*`
  marks a verb of state, which has no perfect here; `!` one that takes no place; `€` something that
  one can do für somebody.
- `adverbs.tsv`: adverbs of time and of frequency, with the tenses that they go with.
- `determiners.tsv`: English singular and plural; German endings (a kind of `endings.tsv`) and stem;
  the endings of an adjective behind it; whether it is definite.
- `endings.tsv`: German endings by gender and case: of determiners (like der, dieser, ein) and of
  adjectives (weak, mixed, strong); and the relative pronouns.
- `modals.tsv`: forms of modal verbs for I, he and they, with `|` between them where they differ; a
  line in the present begins the next verb, and a line in the past belongs to the same one.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path

from shapeshift.data.grammar.tree import (
    Adjective,
    Adverb,
    Case,
    Conjunction,
    Determiner,
    Modal,
    Noun,
    Preposition,
    Pronoun,
    ProperName,
    Tense,
    Verb,
)

_GENDERS = {"der": 0, "die": 1, "das": 2}
_THING = ("food", "text", "clothing", "tool", "device", "container", "vehicle")
_PLACE = ("building", "room", "area")
_GROUPS = {
    "living": ("person", "animal"),
    "thing": _THING,
    "place": _PLACE,
    "lifeless": (*_THING, *_PLACE, "part"),
}
"""Names that stand for several semantic classes in the tables."""


def read_table(name: str) -> Iterator[dict[str, str]]:
    """Yield the rows of a table, column → text."""
    with Path(__file__).with_name(name).open(encoding="utf-8", newline="") as file:
        yield from csv.DictReader(file, delimiter="\t", strict=True)


def expand(names: str) -> list[str]:
    """Return the words of a field, each group by the classes that it stands for."""
    return [each for name in names.split() for each in _GROUPS.get(name, (name,))]


def add_s(word: str) -> str:
    """Return the regular English plural of a noun or third person of a verb."""
    if word.endswith(("s", "sh", "ch", "x", "z")):
        return word + "es"
    if word.endswith("y") and word[-2] not in "aeiou":
        return word[:-1] + "ies"
    return word + "s"


def _noun(row: dict[str, str]) -> Noun:
    nominative, plural = row["nominative"], row["german_plural"]
    genitive = row["genitive"] or nominative
    gender = _GENDERS[row["article"]]
    # A masculine noun whose genitive ends in -n is weak: den Jungen, dem Jungen, des Jungen.
    weak = row["article"] == "der" and genitive.endswith("n")
    oblique = genitive if weak else nominative
    dative_plural = plural if plural.endswith(("n", "s")) else plural + "n"
    return Noun(
        singular=row["english"],
        plural=row["plural"] or add_s(row["english"]),
        gender=gender,
        forms=((nominative, oblique, oblique, genitive), (plural, plural, dative_plural, plural)),
        sense=row["sense"],
    )


def nouns(names: str) -> tuple[Noun, ...]:
    """Return all nouns of the classes that a field names, or single nouns by their English."""
    return tuple(
        noun for name in expand(names) for noun in NOUNS if name in (noun.sense, noun.singular)
    )


NOUNS = tuple(map(_noun, read_table("nouns.tsv")))
SENSES = tuple(dict.fromkeys(noun.sense for noun in NOUNS))
PERSONS, ANIMALS, CLOTHES, TOOLS = map(nouns, ("person", "animal", "clothing", "tool"))
CONTAINERS, BUILDINGS, PARTS = map(nouns, ("container", "building", "part"))
THINGS, PLACES = nouns("thing"), nouns("place")


def _adjectives() -> dict[str, tuple[Adjective, ...]]:
    by_sense: dict[str, list[Adjective]] = {sense: [] for sense in SENSES}
    for row in read_table("adjectives.tsv"):
        stem = row["stem"] or row["german"]
        adjective = Adjective(row["english"], row["german"], stem, int(row["rank"]))
        for sense in expand(row["senses"]):
            by_sense[sense].append(adjective)
    return {sense: tuple(adjectives) for sense, adjectives in by_sense.items()}


ADJECTIVES = _adjectives()

_FIRST_NAMES = "Anna Maria Julia Eva Clara Laura Peter Paul Martin Jan Tim David Simon Robert"
PERSON_NAMES = tuple(ProperName(name, name) for name in _FIRST_NAMES.split())
_CITY_NAMES = (
    ("Berlin", "Berlin"), ("Hamburg", "Hamburg"), ("Munich", "München"), ("Vienna", "Wien"),
    ("Cologne", "Köln"), ("Leipzig", "Leipzig"), ("Bremen", "Bremen"), ("Zurich", "Zürich"),
)  # fmt: skip
CITIES = tuple(ProperName(english, german) for english, german in _CITY_NAMES)

I = Pronoun(("I", "me"), ("ich", "mich", "mir"), True, False)  # noqa: E741
HE = Pronoun(("he", "him"), ("er", "ihn", "ihm"), False, False)
SHE = Pronoun(("she", "her"), ("sie", "sie", "ihr"), False, False)
WE = Pronoun(("we", "us"), ("wir", "uns", "uns"), True, True)
THEY = Pronoun(("they", "them"), ("sie", "sie", "ihnen"), False, True)


DETERMINERS = {
    row["singular"]: Determiner(
        english=(row["singular"], row["plural"]),
        endings=row["endings"],
        stem=row["stem"],
        declension=row["declension"],
        definite=row["definite"] == "yes",
    )
    for row in read_table("determiners.tsv")
}
BARE, THE, THIS, A, NO, EVERY, ALL, MANY, SOME = (
    DETERMINERS[name] for name in ("", "the", "this", "a", "no", "every", "all", "many", "some")
)
POSSESSIVES = tuple(DETERMINERS[name] for name in ["my", "his", "her", "our", "their"])
_NUMBERS = ("two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
NUMERALS = tuple(DETERMINERS[name] for name in _NUMBERS)


def _adverbs(kind: str) -> tuple[Adverb, ...]:
    return tuple(
        Adverb(
            english=row["english"],
            german=row["german"],
            tenses=frozenset(Tense[name.upper()] for name in row["tenses"].split()),
        )
        for row in read_table("adverbs.tsv")
        if row["kind"] == kind
    )


TIMES, FREQUENCIES = _adverbs("time"), _adverbs("frequency")


NOMINATIVE, ACCUSATIVE, DATIVE, GENITIVE = (Preposition("", "", case) for case in Case)
IN = Preposition("in", "in", Case.DATIVE)
AT_BUILDING = (
    Preposition("in front of", "vor", Case.DATIVE),
    Preposition("behind", "hinter", Case.DATIVE),
    Preposition("next to", "neben", Case.DATIVE),
)
TO = Preposition("to", "zu", Case.DATIVE)
TO_CITY = Preposition("to", "nach", Case.DATIVE)
WITH = Preposition("with", "mit", Case.DATIVE)
FROM = Preposition("from", "aus", Case.DATIVE)
FOR = Preposition("for", "für", Case.ACCUSATIVE)

AND = Conjunction("and", "und", "und")
BUT = Conjunction("but", "aber", "aber")
THAT = Conjunction("that", "dass", "dass")
ADVERBIALS = (
    Conjunction("because", "weil", "weil"),
    Conjunction("although", "obwohl", "obwohl"),
    Conjunction("while", "während", "während", simple=True),
    Conjunction("when", "wenn", "als", simple=True),
    Conjunction("if", "wenn", "wenn", simple=True, only_present=True),
    Conjunction("before", "bevor", "bevor", simple=True),
    Conjunction("until", "bis", "bis", simple=True),
)


def _modals() -> tuple[Modal, ...]:
    modals: list[Modal] = []
    for row in read_table("modals.tsv"):
        tense = Tense[row["tense"].upper()]
        if tense is Tense.PRESENT:
            modals.append(Modal({}, {}))
        modal = modals[-1]
        modal.english[tense, False] = _persons(row["english"])
        modal.english[tense, True] = _persons(row["negated"])
        modal.german[tense] = _persons(row["german"])
    return tuple(modals)


def _persons(forms: str) -> tuple[str, str, str]:
    """Return the forms for I, he and they; a single one stands for all three."""
    first, *others = forms.split("|")
    return (first, others[0], others[1]) if others else (first, first, first)


MODALS = _modals()

_IRREGULAR_THIRD = {"go": "goes", "have": "has", "do": "does", "be": "is"}


def _verb(row: dict[str, str]) -> Verb:
    base, past, preterite = row["english"], row["past"], row["preterite"]
    prefix, _, infinitive = row["infinitive"].rpartition("|")
    auxiliary, _, participle = row["german_participle"].rpartition(" ")
    present = row["present"]
    if "|" not in present:
        present = f"{infinitive[:-1]}|{present}|{infinitive}"
    english, german, case = (row["preposition"] or "::accusative").split(":")
    stative = "*" in row["marks"]
    return Verb(
        base=base,
        third=_IRREGULAR_THIRD.get(base) or add_s(base),
        past=past,
        participle=row["participle"] or past,
        particle=row["particle"],
        infinitive=infinitive,
        german_present=_persons(present),
        german_past=(preterite, preterite + ("n" if preterite.endswith("e") else "en")),
        german_participle=participle,
        prefix=prefix,
        with_sein=auxiliary == "ist",
        frame=row["frame"],
        subjects=frozenset(expand(row["subjects"])),
        objects=nouns(row["objects"]),
        preposition=Preposition(english, german, Case[case.upper()]),
        stative=stative,
        for_someone="€" in row["marks"],
        has_place=not ("!" in row["marks"] or stative or row["frame"] == "direction"),
    )


VERBS = tuple(map(_verb, read_table("verbs.tsv")))
BE = next(verb for verb in VERBS if verb.frame == "copula")
SEE = next(verb for verb in VERBS if (verb.base, verb.frame) == ("see", "accusative"))
BELONG = next(verb for verb in VERBS if verb.base == "belong")
