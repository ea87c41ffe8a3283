"""The words of the built-in grammar, which both languages share.

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
from dataclasses import dataclass
from enum import IntEnum, StrEnum, auto
from pathlib import Path
from typing import ClassVar

_GENDERS = {"der": 0, "die": 1, "das": 2}
_IRREGULAR_THIRD = {"go": "goes", "have": "has", "do": "does", "be": "is"}
_THING = ("food", "text", "clothing", "tool", "device", "container", "vehicle")
_PLACE = ("building", "room", "area")
_GROUPS = {  # names that stand for several semantic classes in the tables
    "living": ("person", "animal"),
    "thing": _THING,
    "place": _PLACE,
    "lifeless": (*_THING, *_PLACE, "part"),
}


def read_table(name: str) -> Iterator[dict[str, str]]:
    """Yield the rows of a table, column → text."""
    with Path(__file__).with_name(name).open(encoding="utf-8", newline="") as file:
        yield from csv.DictReader(file, delimiter="\t", strict=True)


def expand(names: str) -> list[str]:
    """Return the words of a field, with each group replaced by the classes in it."""
    return [each for name in names.split() for each in _GROUPS.get(name, (name,))]


def add_s(word: str) -> str:
    """Return the regular English plural of a noun or third person of a verb."""
    if word.endswith(("s", "sh", "ch", "x", "z")):
        return word + "es"
    if word.endswith("y") and word[-2] not in "aeiou":
        return word[:-1] + "ies"
    return word + "s"


class Case(IntEnum):
    """German case."""

    NOMINATIVE = 0
    ACCUSATIVE = 1
    DATIVE = 2
    GENITIVE = 3


class Tense(StrEnum):
    """English simple present, simple past, present perfect, `will`; in German Präsens,
    Präteritum, Perfekt, Futur I."""

    PRESENT = auto()
    PAST = auto()
    PERFECT = auto()
    FUTURE = auto()


class Noun:
    """A common noun. `forms[plural][case]` are its German forms; `gender` is a column of
    `endings.tsv`. Verbs and adjectives choose their nouns by the semantic class `sense`."""

    def __init__(self, row: dict[str, str]):
        nominative, plural = row["nominative"], row["german_plural"]
        genitive = row["genitive"] or nominative
        # A masculine noun whose genitive ends in -n is weak: den Jungen, dem Jungen, des Jungen.
        weak = row["article"] == "der" and genitive.endswith("n")
        oblique = genitive if weak else nominative
        dative = plural if plural.endswith(("n", "s")) else plural + "n"
        self.forms = ((nominative, oblique, oblique, genitive), (plural, plural, dative, plural))
        self.singular = row["english"]
        self.plural = row["plural"] or add_s(row["english"])
        self.gender = _GENDERS[row["article"]]
        self.sense = row["sense"]


@dataclass(frozen=True, slots=True, eq=False)
class Word:
    """A word, or several, without inflection."""

    english: str
    german: str

    @property
    def num_words(self) -> int:
        """Number of English words."""
        return len(self.english.split())

    def in_english(self, **_: bool) -> list[str]:
        return [self.english]

    def in_german(self, case: Case = Case.NOMINATIVE, **_: bool) -> list[str]:
        return [self.german]


@dataclass(frozen=True, slots=True, eq=False)
class ProperName(Word):
    """A person's or a city's name; persons only stand where a person may."""

    sense: ClassVar[str] = "person"
    person: ClassVar[int] = 1
    plural: ClassVar[bool] = False
    definite: ClassVar[bool] = True


@dataclass(frozen=True, slots=True, eq=False)
class Pronoun:
    """A personal pronoun: English subject and object form, German nominative to dative; `person` is
    0 for I, 1 for he and she, 2 for any plural."""

    english: tuple[str, str]
    german: tuple[str, str, str]
    first_person: bool
    person: int
    sense: ClassVar[str] = "person"
    definite: ClassVar[bool] = True

    def in_english(self, *, subject: bool = False) -> list[str]:
        return [self.english[not subject]]

    def in_german(self, case: Case = Case.NOMINATIVE, **_: bool) -> list[str]:
        return [self.german[case]]


class Adjective:
    """An adjective: `predicative` is the bare German form, `stem` takes the endings. Of two
    adjectives the one with the lower `rank` stands first."""

    def __init__(self, row: dict[str, str]):
        self.english = row["english"]
        self.predicative = row["german"]
        self.stem = row["stem"] or row["german"]
        self.rank = int(row["rank"])
        self.senses = expand(row["senses"])


class Determiner:
    """A determiner: its English forms (singular, plural), empty for the bare plural, and its German
    `forms[case][column]`. An adjective behind it has the endings `declension`."""

    def __init__(self, row: dict[str, str]):
        self.english = (row["singular"], row["plural"])
        endings = ENDINGS[row["endings"]] if row["endings"] else [[""] * 4] * 4
        self.forms = [[row["stem"] + ending for ending in of_case] for of_case in endings]
        self.declension = row["declension"]
        self.definite = row["definite"] == "yes"


@dataclass(frozen=True, slots=True, eq=False)
class Preposition(Word):
    """A preposition and the case that it governs here; a case alone has no words."""

    case: Case


@dataclass(frozen=True, slots=True, eq=False)
class Conjunction(Word):
    """A word that joins clauses. `german_past` replaces `german` in the past (when: wenn, als).
    `simple` asks for simple tenses in both clauses; `only_present` never stands in the past."""

    german_past: str
    simple: bool = False
    only_present: bool = False


Modal = dict[Tense, dict[str, tuple[str, str, str]]]
"""A modal verb in the tenses that it has: `english`, `negated` (I, he, they), `german` (ich, er,
wir)."""


class Verb:
    """A verb in both languages.

    `base`, `third`, `past`, `participle` are English; `particle` follows the verb (`look` `for`).
    `german_present` is (ich, er, wir); `german_past` (ich/er, wir); none has the separable
    `prefix`, which is kept apart. `frame` is what the verb takes besides its subject:
    `intransitive` nothing, `accusative`, `dative`, `ditransitive` both, `oblique` a preposition
    that the verb chooses (warten auf), `direction` zu or nach, `clause` a dass-clause,
    `dative_clause` a dative and a dass-clause, `copula` an adjective.
    `subjects` and `objects` are what may fill the roles, `preposition` governs the object. A
    `stative` verb has no perfect.
    """

    def __init__(self, row: dict[str, str]):
        self.base, self.past, self.particle = row["english"], row["past"], row["particle"]
        self.third = _IRREGULAR_THIRD.get(self.base) or add_s(self.base)
        self.participle = row["participle"] or self.past
        self.prefix, _, self.infinitive = row["infinitive"].rpartition("|")
        present, preterite = row["present"], row["preterite"]
        if "|" not in present:
            present = f"{self.infinitive[:-1]}|{present}|{self.infinitive}"
        self.german_present = _persons(present)
        self.german_past = (preterite, preterite + ("n" if preterite.endswith("e") else "en"))
        auxiliary, _, self.german_participle = row["german_participle"].rpartition(" ")
        self.with_sein = auxiliary == "ist"
        self.frame = row["frame"]
        self.subjects = frozenset(expand(row["subjects"]))
        self.objects = nouns(row["objects"])
        english, german, case = (row["preposition"] or "::accusative").split(":")
        self.preposition = Preposition(english, german, Case[case.upper()])
        self.stative = "*" in row["marks"]
        self.for_someone = "€" in row["marks"]  # takes für + accusative
        # takes a place: in the garden
        self.has_place = not (self.stative or "!" in row["marks"] or self.frame == "direction")


def nouns(names: str) -> tuple[Noun, ...]:
    """Return all nouns of the classes that a field names, or single nouns by their English."""
    return tuple(
        noun for name in expand(names) for noun in NOUNS if name in (noun.sense, noun.singular)
    )


ENDINGS: dict[str, list[list[str]]] = {}
"""Of a kind of word, by case: masculine, feminine, neuter, plural."""
for _of, _, *_forms in map(dict.values, read_table("endings.tsv")):
    ENDINGS.setdefault(_of, []).append(_forms)

NOUNS = tuple(map(Noun, read_table("nouns.tsv")))
SENSES = tuple(dict.fromkeys(noun.sense for noun in NOUNS))
PERSONS, ANIMALS, CLOTHES, TOOLS = map(nouns, ("person", "animal", "clothing", "tool"))
CONTAINERS, BUILDINGS, PARTS = map(nouns, ("container", "building", "part"))
THINGS, PLACES = nouns("thing"), nouns("place")

_ADJECTIVES = tuple(map(Adjective, read_table("adjectives.tsv")))
ADJECTIVES = {sense: tuple(x for x in _ADJECTIVES if sense in x.senses) for sense in SENSES}

_FIRST_NAMES = "Anna Maria Julia Eva Clara Laura Peter Paul Martin Jan Tim David Simon Robert"
PERSON_NAMES = tuple(ProperName(name, name) for name in _FIRST_NAMES.split())
_CITY_NAMES = (
    ("Berlin", "Berlin"), ("Hamburg", "Hamburg"), ("Munich", "München"), ("Vienna", "Wien"),
    ("Cologne", "Köln"), ("Leipzig", "Leipzig"), ("Bremen", "Bremen"), ("Zurich", "Zürich"),
)  # fmt: skip
CITIES = tuple(ProperName(english, german) for english, german in _CITY_NAMES)

I = Pronoun(("I", "me"), ("ich", "mich", "mir"), True, 0)  # noqa: E741
HE = Pronoun(("he", "him"), ("er", "ihn", "ihm"), False, 1)
SHE = Pronoun(("she", "her"), ("sie", "sie", "ihr"), False, 1)
WE = Pronoun(("we", "us"), ("wir", "uns", "uns"), True, 2)
THEY = Pronoun(("they", "them"), ("sie", "sie", "ihnen"), False, 2)

DETERMINERS = {row["singular"]: Determiner(row) for row in read_table("determiners.tsv")}
BARE, THE, THIS, A, NO, EVERY, ALL, MANY, SOME = (
    DETERMINERS[name] for name in ("", "the", "this", "a", "no", "every", "all", "many", "some")
)
POSSESSIVES = tuple(DETERMINERS[name] for name in ["my", "his", "her", "our", "their"])
_NUMBERS = ("two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
NUMERALS = tuple(DETERMINERS[name] for name in _NUMBERS)

TIMES: dict[Tense, list[Word]] = {tense: [] for tense in Tense}
FREQUENCIES: dict[Tense, list[Word]] = {tense: [] for tense in Tense}
for _row in read_table("adverbs.tsv"):
    for _tense in _row["tenses"].split():
        _adverbs = TIMES if _row["kind"] == "time" else FREQUENCIES
        _adverbs[Tense(_tense)].append(Word(_row["english"], _row["german"]))

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


def _persons(forms: str) -> tuple[str, str, str]:
    """Return the forms for I, he and they; a single one stands for all three."""
    first, *others = forms.split("|")
    return (first, others[0], others[1]) if others else (first, first, first)


MODALS: list[Modal] = []
for _row in read_table("modals.tsv"):
    if Tense(_row["tense"]) is Tense.PRESENT:
        MODALS.append({})
    MODALS[-1][Tense(_row["tense"])] = {
        each: _persons(_row[each]) for each in ("english", "negated", "german")
    }

VERBS = tuple(map(Verb, read_table("verbs.tsv")))
BE = next(verb for verb in VERBS if verb.frame == "copula")
SEE = next(verb for verb in VERBS if (verb.base, verb.frame) == ("see", "accusative"))
BELONG = next(verb for verb in VERBS if verb.base == "belong")
