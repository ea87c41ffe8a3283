"""Words and derivation trees of the built-in grammar: the common source of both languages.

A tree holds words and features (number, tense, definiteness, …), but no word order and no
inflection: `english` and `german` add those, each for its own language.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, IntEnum, auto
from typing import ClassVar


class Case(IntEnum):
    """German case."""

    NOMINATIVE = 0
    ACCUSATIVE = 1
    DATIVE = 2
    GENITIVE = 3


class Tense(Enum):
    """English simple present, simple past, present perfect, `will`; in German Präsens,
    Präteritum, Perfekt, Futur I."""

    PRESENT = auto()
    PAST = auto()
    PERFECT = auto()
    FUTURE = auto()


@dataclass(frozen=True, slots=True, eq=False)
class Noun:
    """A common noun. `forms[plural][case]` are its German forms. Verbs and adjectives choose their
    nouns by the semantic class `sense`, such as `person`: `nouns.tsv` has all of them."""

    singular: str
    plural: str
    gender: int  # 0 masculine, 1 feminine, 2 neuter: the columns of `endings.tsv`
    forms: tuple[tuple[str, str, str, str], tuple[str, str, str, str]]
    sense: str


@dataclass(frozen=True, slots=True, eq=False)
class Word:
    """A word, or several, without inflection."""

    english: str
    german: str

    @property
    def num_words(self) -> int:
        """Number of English words."""
        return len(self.english.split())


@dataclass(frozen=True, slots=True, eq=False)
class ProperName(Word):
    """A person's or a city's name; persons only stand where a person may."""

    plural: ClassVar[bool] = False
    definite: ClassVar[bool] = True


@dataclass(frozen=True, slots=True, eq=False)
class Pronoun:
    """A personal pronoun: English subject and object form, German nominative to dative."""

    english: tuple[str, str]
    german: tuple[str, str, str]
    first_person: bool
    plural: bool
    definite: ClassVar[bool] = True


@dataclass(frozen=True, slots=True, eq=False)
class Adjective:
    """An adjective: `predicative` is the bare German form, `stem` takes the endings. Of two
    adjectives the one with the lower `rank` stands first."""

    english: str
    predicative: str
    stem: str
    rank: int


@dataclass(frozen=True, slots=True, eq=False)
class Determiner:
    """A determiner. `english` is empty for the bare plural; the German one is `stem` with `endings`
    of `endings.tsv`, or the stem alone. An adjective behind it has the endings `declension`."""

    english: tuple[str, str]  # singular, plural
    endings: str
    stem: str
    declension: str
    definite: bool


@dataclass(frozen=True, slots=True, eq=False)
class Adverb(Word):
    """An adverb or a time expression, and the tenses that it goes with."""

    tenses: frozenset[Tense]


@dataclass(frozen=True, slots=True, eq=False)
class Preposition(Word):
    """A preposition and the case that it governs here; a case alone has no words."""

    case: Case


@dataclass(frozen=True, slots=True, eq=False)
class Verb:
    """A verb in both languages.

    `base`, `third`, `past`, `participle` are English; `particle` follows the verb (`look` `for`).
    `german_present` is (ich, er, wir); `german_past` (ich/er, wir); none has the separable
    `prefix`, which is kept apart. `frame` is what the verb takes besides its subject:
    `intransitive` nothing, `accusative`, `dative`, `ditransitive` both, `oblique` a preposition
    that the verb chooses (warten auf), `direction` zu or nach, `clause` a dass-clause,
    `dative_clause` a dative and a dass-clause, `copula` an adjective.
    `subjects` and `objects` are what may fill the roles, `preposition` governs the object.
    """

    base: str
    third: str
    past: str
    participle: str
    particle: str
    infinitive: str
    german_present: tuple[str, str, str]
    german_past: tuple[str, str]
    german_participle: str
    prefix: str
    with_sein: bool
    frame: str
    subjects: frozenset[str]
    objects: tuple[Noun, ...]
    preposition: Preposition
    stative: bool  # not in the perfect
    for_someone: bool  # takes für + accusative
    has_place: bool  # takes a place: in the garden


@dataclass(frozen=True, slots=True, eq=False)
class Modal:
    """A modal verb. `english[tense, negated]` are the forms for (I, he, they);
    `german[tense]` those for (ich, er, wir). A tense that is missing does not exist."""

    english: dict[tuple[Tense, bool], tuple[str, str, str]]
    german: dict[Tense, tuple[str, str, str]]


@dataclass(frozen=True, slots=True, eq=False)
class Conjunction(Word):
    """A word that joins clauses. `german_past` replaces `german` in the past (when: wenn, als).
    `simple` asks for simple tenses in both clauses; `only_present` never stands in the past."""

    german_past: str
    simple: bool = False
    only_present: bool = False


@dataclass(slots=True)
class NounPhrase:
    """A noun with what belongs to it. With a `possessor` (`the boy's dog`: der Hund des Jungen)
    the determiner is ignored. The modifier stands behind the noun."""

    noun: Noun
    plural: bool
    determiner: Determiner
    adjectives: tuple[Adjective, ...] = ()
    possessor: NounPhrase | ProperName | None = None
    modifier: PrepositionalPhrase | RelativeClause | None = None

    @property
    def definite(self) -> bool:
        """Whether it picks out someone or something definite."""
        return self.possessor is not None or self.determiner.definite


@dataclass(slots=True)
class Coordination:
    """Two or more phrases joined by `and`: third person plural. All but the last are simple
    (no modifier), so that `and` always joins what stands nearest."""

    items: tuple[Nominal, ...]
    plural: ClassVar[bool] = True

    @property
    def definite(self) -> bool:
        """Whether all of it is definite."""
        return all(item.definite for item in self.items)


Nominal = Pronoun | ProperName | NounPhrase | Coordination


@dataclass(slots=True)
class PrepositionalPhrase:
    """A noun phrase and what governs it: a preposition, or a case alone."""

    preposition: Preposition
    object: Nominal


@dataclass(slots=True)
class Predicate:
    """A verb with all that depends on it, but not its subject. `phrases` are its objects and places
    by role, in the English order: `recipient`, `object`, `oblique`, `direction`, `beneficiary`,
    `place`."""

    verb: Verb
    tense: Tense
    modal: Modal | None = None
    negated: bool = False
    phrases: dict[str, PrepositionalPhrase] = field(default_factory=dict)
    time: Adverb | None = None
    frequency: Adverb | None = None
    adjective: Adjective | None = None
    very: bool = False
    complement: Subordinate | None = None


@dataclass(slots=True)
class Clause:
    """A subject and one or more predicates joined by `and`. In a relative clause whose pronoun is
    the subject, `subject` is None. Before a main clause of one predicate may stand its time, its
    place or a subordinate clause: `front`."""

    subject: Nominal | None
    predicates: tuple[Predicate, ...]
    adverbial: Subordinate | None = None
    front: Adverb | PrepositionalPhrase | Subordinate | None = None


@dataclass(slots=True)
class Subordinate:
    """One or more clauses, each after the same subordinating conjunction, joined by `and`."""

    conjunction: Conjunction
    clauses: tuple[Clause, ...]


@dataclass(slots=True)
class RelativeClause:
    """A relative clause; what the pronoun stands for is missing from `clause`. `preposition`
    governs the pronoun: a nominative is the subject, a genitive the possessor of the subject."""

    preposition: Preposition
    clause: Clause


@dataclass(slots=True)
class Sentence:
    """Main clauses; `conjunctions[i]` joins clause i to clause i + 1."""

    clauses: tuple[Clause, ...]
    conjunctions: tuple[Conjunction, ...] = ()


def person_index(nominal: Nominal | None, antecedent: NounPhrase | None) -> int:
    """Return 0 for I, 1 for he/she, 2 for any plural: the index into a verb's forms.

    Args:
        nominal: the subject; None where a relative pronoun is the subject.
        antecedent: what that relative pronoun refers to.
    """
    subject = antecedent if nominal is None else nominal
    assert subject is not None
    if subject.plural:
        return 2
    return 0 if isinstance(subject, Pronoun) and subject.first_person else 1
