"""Derivation trees of the built-in grammar: the common source of both languages.

A tree holds words and features (number, tense, definiteness, …), but no word order and no
inflection: `english` and `german` add those, each for its own language.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from shapeshift.data.grammar.lexicon import (
    Adjective,
    Adverb,
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
