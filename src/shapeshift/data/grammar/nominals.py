"""Random noun phrases of an exact number of English words."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from enum import Enum, auto
from typing import NamedTuple, TypeVar

from shapeshift.data.grammar import lexicon
from shapeshift.data.grammar.lexicon import Adjective, Determiner, Noun, Pronoun, ProperName
from shapeshift.data.grammar.tree import (
    Coordination,
    Nominal,
    NounPhrase,
    PrepositionalPhrase,
    RelativeClause,
)

T = TypeVar("T")


class Determiners(NamedTuple):
    """Determiners to draw from; a determiner that is listed twice is twice as likely."""

    singular: tuple[Determiner, ...]
    plural: tuple[Determiner, ...]


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
ONE_PLACE = Determiners(UNDER_NEGATION.singular, ())

THIRD_PERSON = (lexicon.HE, lexicon.SHE, lexicon.THEY)
ALL_PERSONS = (*THIRD_PERSON, lexicon.I, lexicon.WE)

# Nouns for `with`: the man with the hat, the house with the door.
_ATTRIBUTES: dict[str, tuple[Noun, ...]] = {
    "person": (*lexicon.CLOTHES, *lexicon.CONTAINERS, *lexicon.TOOLS[:2]),
    "building": lexicon.PARTS,
}
KIN = lexicon.nouns(
    "friend brother father son uncle grandfather mother sister daughter aunt grandmother"
)


_ADJECTIVE_PAIRS: dict[str, tuple[tuple[Adjective, Adjective], ...]] = {
    sense: tuple((a, b) for a in adjectives for b in adjectives if a.rank < b.rank)
    for sense, adjectives in lexicon.ADJECTIVES.items()
}


class Freedom(Enum):
    """Which verb groups a clause may have."""

    ANY = auto()
    SIMPLE = auto()  # neither perfect nor future
    PLAIN = auto()  # one finite verb, affirmative


class Context(NamedTuple):
    """What a phrase must respect because of what stands around it.

    Attributes:
        past: whether the sentence is set in the past.
        freedom: which verb groups are allowed.
        closed: true where something follows that a reader could mistake for part of a relative
            or subordinate clause; the phrase then has neither at its right edge.
        relative: true inside a relative clause, however deep.
        depth: how deeply the phrase is embedded.
        front: true where a time adverbial may open the clause.
    """

    past: bool
    freedom: Freedom = Freedom.ANY
    closed: bool = False
    relative: bool = False
    depth: int = 0
    front: bool = False


DeriveRelative = Callable[[int, Noun, bool, Context], RelativeClause]


class Nominals:
    """Draws noun phrases.

    Args:
        rng: source of all randomness.
        derive_relative: makes a relative clause from (number of words with its pronoun, noun,
            whether the noun is plural, context of the noun phrase).
    """

    def __init__(self, rng: random.Random, derive_relative: DeriveRelative):
        self._random = rng.random
        self._derive_relative = derive_relative

    def pick(self, choices: Sequence[T]) -> T:
        """Return one of the choices, all equally likely."""
        return choices[int(self._random() * len(choices))]

    def chance(self, probability: float) -> bool:
        """Return true with this probability."""
        return self._random() < probability

    def up_to(self, most: int) -> int:
        """Return a number from 0 to `most`, both included."""
        return int(self._random() * (most + 1))

    def nominal(
        self,
        num_words: int,
        pool: tuple[Noun, ...],
        determiners: Determiners,
        pronouns: tuple[Pronoun, ...],
        context: Context,
    ) -> Nominal:
        """Return a phrase of exactly `num_words` English words.

        Args:
            num_words: at least 1; at least 2 if the phrase may not be plural and its nouns are
                not persons.
            pool: nouns that may be its head.
            determiners: determiners that it may have.
            pronouns: pronouns that may stand for a person.
            context: what stands around it.
        """
        noun = self.pick(pool)
        if num_words == 1 and noun.sense == "person":
            return self.pick(lexicon.PERSON_NAMES) if self.chance(0.4) else self.pick(pronouns)
        if num_words <= 2 or (num_words <= 4 and self.chance(0.85)):
            return self._simple(num_words, noun, determiners)
        if num_words > 9 or not self.chance(0.15):
            modified = self._modified(num_words, noun, determiners, context)
            if modified is not None:
                return modified
        if num_words == 4 or (num_words == 3 and noun.sense != "person"):
            return self._simple(num_words, noun, determiners)
        return self._coordination(num_words, noun, pool, determiners)

    def _simple(self, num_words: int, noun: Noun, determiners: Determiners) -> NounPhrase:
        """Return one to four words without anything behind the noun."""
        plural = bool(determiners.plural) and (num_words == 1 or self.chance(0.3))
        if num_words == 1:
            return NounPhrase(noun, True, lexicon.BARE)
        possible = noun.sense != "person" or noun in KIN
        if possible and self.chance(0.1):
            if num_words == 2 or self.chance(0.5):
                name = self.pick(lexicon.PERSON_NAMES)
                return self._with_adjectives(num_words - 2, noun, plural, lexicon.THE, name)
            person = self.pick(lexicon.PERSONS)
            owner = NounPhrase(person, self.chance(0.3), self.pick(DEFINITE.singular))
            return self._with_adjectives(num_words - 3, noun, plural, lexicon.THE, owner)
        determiner = self.pick(determiners.plural if plural else determiners.singular)
        if determiner is lexicon.BARE and num_words > 3:
            determiner = lexicon.THE
        words_before = num_words - 1 - (determiner is not lexicon.BARE)
        return self._with_adjectives(words_before, noun, plural, determiner, None)

    def _with_adjectives(
        self,
        num_adjectives: int,
        noun: Noun,
        plural: bool,
        determiner: Determiner,
        possessor: NounPhrase | ProperName | None,
    ) -> NounPhrase:
        adjectives: tuple[Adjective, ...] = ()
        if num_adjectives == 1:
            adjectives = (self.pick(lexicon.ADJECTIVES[noun.sense]),)
        elif num_adjectives == 2:
            adjectives = self.pick(_ADJECTIVE_PAIRS[noun.sense])
        return NounPhrase(noun, plural, determiner, adjectives, possessor)

    def _modified(
        self, num_words: int, noun: Noun, determiners: Determiners, context: Context
    ) -> NounPhrase | None:
        """Return a phrase with something behind the noun, or None where none fits."""
        from_city = noun.sense == "person" and 4 <= num_words <= 6
        if from_city and self.chance(0.3):
            phrase = self._simple(num_words - 2, noun, determiners)
            phrase.modifier = PrepositionalPhrase(lexicon.FROM, self.pick(lexicon.CITIES))
            return phrase
        attributes = _ATTRIBUTES.get(noun.sense)
        if attributes and 5 <= num_words <= 9 and self.chance(0.6 if context.closed else 0.2):
            head = 2 + self.up_to(min(2, num_words - 5))
            inner = context._replace(closed=True)
            thing = self.nominal(num_words - head - 1, attributes, ONE_PLACE, (), inner)
            phrase = self._simple(head, noun, determiners)
            phrase.modifier = PrepositionalPhrase(lexicon.WITH, thing)
            return phrase
        living = noun.sense in ("person", "animal")
        if context.closed or num_words < (4 if living else 5):
            return None
        head = 2 + (num_words > 5 and self.chance(0.4))
        phrase = self._simple(head, noun, determiners)
        # Behind `the boy's dog` it would not be clear in German who sleeps.
        if isinstance(phrase.possessor, NounPhrase):
            return None
        phrase.modifier = self._derive_relative(num_words - head, noun, phrase.plural, context)
        return phrase

    def _coordination(
        self, num_words: int, noun: Noun, pool: tuple[Noun, ...], determiners: Determiners
    ) -> Coordination:
        """Return `a, b and c` of items without anything behind their nouns."""
        if noun.sense == "person" and num_words == 3:
            first = self.pick(lexicon.PERSON_NAMES)
            others = [name for name in lexicon.PERSON_NAMES if name is not first]
            return Coordination((first, self.pick(others)))
        if determiners is UNDER_NEGATION:
            determiners = DEFINITE
        elif determiners in (AFFIRMATIVE, ANY):
            determiners = UNDER_NEGATION
        unused = [other for other in pool if other.sense == noun.sense and other is not noun]
        items: list[Nominal] = []
        rest = num_words - 1
        while rest:
            size = rest if items and rest <= 4 else 2 + self.up_to(min(4, rest - 2) - 2)
            items.append(self._simple(size, noun, determiners))
            rest -= size
            noun = unused.pop(self.up_to(len(unused) - 1)) if unused else self.pick(pool)
        return Coordination(tuple(items))
