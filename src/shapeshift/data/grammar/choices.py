"""What random derivations choose from; what is listed twice is twice as likely."""

from __future__ import annotations

from typing import NamedTuple

from shapeshift.data.grammar import lexicon
from shapeshift.data.grammar.lexicon import Adjective, Noun


class Determiners(NamedTuple):
    """Determiners to draw from."""

    singular: tuple[lexicon.Determiner, ...]
    plural: tuple[lexicon.Determiner, ...]


_DEFINITE = (lexicon.THE,) * 12 + lexicon.POSSESSIVES + (lexicon.THIS,) * 2
DEFINITE = Determiners(_DEFINITE, _DEFINITE)
# What goes with negation: not + a is kein, the others leave nicht alone.
UNDER_NEGATION = Determiners(_DEFINITE + (lexicon.A,) * 8, _DEFINITE + (lexicon.BARE,) * 6)
AFFIRMATIVE = Determiners(
    UNDER_NEGATION.singular + (lexicon.EVERY,) * 2,
    UNDER_NEGATION.plural
    + (lexicon.MANY, lexicon.SOME) * 2
    + (lexicon.ALL,)
    + lexicon.NUMERALS[:5]
    + lexicon.NUMERALS,
)
ANY = Determiners((*AFFIRMATIVE.singular, lexicon.NO), (*AFFIRMATIVE.plural, lexicon.NO))
OF_COORDINATED = {UNDER_NEGATION: DEFINITE, AFFIRMATIVE: UNDER_NEGATION, ANY: UNDER_NEGATION}
ONE_PLACE = Determiners(UNDER_NEGATION.singular, ())

THIRD_PERSON = (lexicon.HE, lexicon.SHE, lexicon.THEY)
ALL_PERSONS = (*THIRD_PERSON, lexicon.I, lexicon.WE)
LIVING = ("person", "animal")
KIN = lexicon.nouns(
    "friend brother father son uncle grandfather mother sister daughter aunt grandmother"
)
# Nouns for `with`: the man with the hat, the house with the door.
ATTRIBUTES: dict[str, tuple[Noun, ...]] = {
    "person": (*lexicon.CLOTHES, *lexicon.CONTAINERS, *lexicon.TOOLS[:2]),
    "building": lexicon.PARTS,
}
ADJECTIVE_PAIRS: dict[str, tuple[tuple[Adjective, Adjective], ...]] = {
    sense: tuple((a, b) for a in adjectives for b in adjectives if a.rank < b.rank)
    for sense, adjectives in lexicon.ADJECTIVES.items()
}

SUBJECT_SENSES = ("person",) * 14 + ("animal",) * 3 + ("tool",) * 2
SUBJECTS = {
    "person": lexicon.PERSONS,
    "animal": lexicon.ANIMALS,
    "tool": (*lexicon.THINGS, *lexicon.BUILDINGS),
}

# English words that a frame needs besides the verb group and a preposition.
FEWEST = {
    "intransitive": 0, "accusative": 1, "dative": 1, "ditransitive": 2,
    "oblique": 1, "direction": 2, "clause": 3, "dative_clause": 4, "copula": 1,
}  # fmt: skip
# What fills the frames of verbs other than the copula and those with a clause, in English order.
SLOTS = {
    "intransitive": (),
    "accusative": ("object",),
    "dative": ("object",),
    "ditransitive": ("recipient", "object"),
    "oblique": ("oblique",),
    "direction": ("direction",),
}


def _weighted(**weights: int) -> tuple[str, ...]:
    return tuple(frame for frame, weight in weights.items() for _ in range(weight))


SHORT = _weighted(intransitive=3, accusative=6, dative=3, oblique=2, direction=2, copula=3)
MIDDLE = _weighted(
    intransitive=2, accusative=7, dative=4, ditransitive=4, oblique=4, direction=3, clause=4,
    dative_clause=1, copula=1,
)  # fmt: skip
LONG = _weighted(accusative=4, dative=2, ditransitive=3, oblique=3, clause=8, dative_clause=4)
OF_ANIMALS = _weighted(intransitive=3, accusative=6, dative=3, copula=3)
OF_THINGS = _weighted(intransitive=1, dative=3, copula=4)
WITH_GAP = _weighted(accusative=2, dative=1, oblique=1)

VERBS_OF = {
    (sense, frame): tuple(v for v in lexicon.VERBS if v.frame == frame and sense in v.subjects)
    for sense in lexicon.SENSES
    for frame in FEWEST
}
# Of which a noun can be the object, the subject being a person.
VERBS_WITH_GAP: dict[tuple[str, Noun], list[lexicon.Verb]] = {
    (frame, noun): [verb for verb in VERBS_OF["person", frame] if noun in verb.objects]
    for frame in WITH_GAP
    for noun in lexicon.NOUNS
}
PAST_MODALS = tuple(modal for modal in lexicon.MODALS if lexicon.Tense.PAST in modal)
