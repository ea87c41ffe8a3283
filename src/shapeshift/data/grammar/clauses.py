"""Random clauses and sentences of an exact number of English words.

Every function gets the number of words of its part of the English sentence, uses some of them for
obligatory words, and passes the rest on. Nothing is cut off or thrown away afterwards.

English must not be ambiguous, or the German would depend on the reading: a clause, an adverb or
`and` always joins the nearest phrase that could take it. So a phrase that ends in a relative clause
is followed by nothing that could still belong to that relative clause (`Context.closed`), and no
because-clause is inside a relative clause.
"""

from __future__ import annotations

import random

from shapeshift.data.grammar import lexicon, nominals
from shapeshift.data.grammar.lexicon import VERBS, Adjective, Conjunction, Noun, Verb
from shapeshift.data.grammar.nominals import Context, Freedom, Nominals
from shapeshift.data.grammar.predicates import Predicates, Subject
from shapeshift.data.grammar.tree import (
    Clause,
    Coordination,
    Nominal,
    NounPhrase,
    RelativeClause,
    Sentence,
    Subordinate,
    person_index,
)

_LIVING = ("person", "animal")
_SUBJECTS = {
    "person": lexicon.PERSONS,
    "animal": lexicon.ANIMALS,
    "tool": (*lexicon.THINGS, *lexicon.BUILDINGS),
}
_SENSES = ("person",) * 14 + ("animal",) * 3 + ("tool",) * 2
_GAP_FRAMES = ("accusative", "accusative", "dative", "oblique")

# By frame and noun, the verbs of which the noun can be the object, the subject being a person.
_VERBS_WITH_GAP: dict[tuple[str, Noun], list[Verb]] = {}
for _verb in VERBS:
    if _verb.frame in _GAP_FRAMES and "person" in _verb.subjects:
        for _noun in _verb.objects:
            _VERBS_WITH_GAP.setdefault((_verb.frame, _noun), []).append(_verb)


class Clauses:
    """Draws clauses and sentences.

    Args:
        rng: source of all randomness.
    """

    def __init__(self, rng: random.Random):
        self._nominals = Nominals(rng, self._relative)
        self._predicates = Predicates(self._nominals, self._subordinate)
        self._pick = self._nominals.pick
        self._chance = self._nominals.chance
        self._up_to = self._nominals.up_to

    def sentence(self, num_words: int) -> Sentence:
        """Return a sentence of exactly `num_words` English words, at least 3."""
        past = self._chance(0.35)
        clauses: list[Clause] = []
        conjunctions: list[Conjunction] = []
        while num_words >= 9 and self._chance(0.12 if num_words < 16 else 0.6):
            size = 4 + self._up_to(min(num_words - 9, 16))
            clauses.append(self._main(size, past))
            conjunctions.append(self._pick((lexicon.AND, lexicon.AND, lexicon.BUT)))
            num_words -= size + 1
        clauses.append(self._main(num_words, past))
        return Sentence(tuple(clauses), tuple(conjunctions))

    def _main(self, num_words: int, past: bool) -> Clause:
        """Return a main clause; something else than the subject may open it."""
        clause = self._clause(num_words, Context(past, front=self._chance(0.3)), main=True)
        predicate = clause.predicates[0]
        free = not (clause.front or clause.adverbial or predicate.time or clause.predicates[1:])
        if free and "place" in predicate.phrases and self._chance(0.35):
            clause.front = predicate.phrases.pop("place")
        return clause

    def _clause(self, num_words: int, context: Context, *, main: bool = False) -> Clause:
        """Return a clause of at least 2 words."""
        may_nest = not (context.relative or context.closed) and context.depth < 4
        if may_nest and num_words >= 7 and self._chance(0.2 if num_words < 12 or not main else 0.5):
            return self._with_adverbial(num_words, context, main)
        context = context if main else context._replace(front=False)
        subject, rest = self._subject(num_words, context)
        if rest >= 5 and self._chance(0.1):
            return self._with_two_predicates(subject, rest, context)
        predicate = self._predicates.predicate(rest, _about(subject), context)
        clause = Clause(subject, (predicate,))
        if context.front:
            clause.front, predicate.time = predicate.time, None
        return clause

    def _with_adverbial(self, num_words: int, context: Context, main: bool) -> Clause:
        """Return a clause with a because-clause, before or behind it."""
        conjunction = self._pick(lexicon.ADVERBIALS)
        if conjunction.only_present and context.past:
            conjunction = lexicon.ADVERBIALS[0]
        size = 3 + self._up_to(num_words - 5)  # with the conjunction; 2 words stay for the rest
        freedom = Freedom.SIMPLE if conjunction.simple else Freedom.ANY
        inner = Context(context.past, freedom, depth=context.depth + 1)
        adverbial = self._subordinate(size, conjunction, inner)
        freedom = freedom if conjunction.simple else context.freedom
        outer = context._replace(freedom=freedom, front=False, depth=context.depth + 1)
        in_front = main and self._chance(0.4)
        subject, rest = self._subject(num_words - size, outer)
        predicate = self._predicates.predicate(rest, _about(subject), outer)
        if in_front:
            return Clause(subject, (predicate,), front=adverbial)
        return Clause(subject, (predicate,), adverbial)

    def _with_two_predicates(self, subject: Nominal, num_words: int, context: Context) -> Clause:
        """Return `subject …s and …s`. The first predicate is plain: in `they can sleep and work`,
        `can` might belong to one verb or to both."""
        about = _about(subject)
        size = 2 + self._up_to(min(num_words - 5, 4))
        plain = context._replace(freedom=Freedom.PLAIN, closed=True, front=False)
        first = self._predicates.predicate(size, about, plain)
        inner = context._replace(front=False)
        second = self._predicates.predicate(num_words - size - 1, about, inner)
        return Clause(subject, (first, second))

    def _subordinate(
        self, num_words: int, conjunction: Conjunction, context: Context
    ) -> Subordinate:
        """Return a subordinate clause of `num_words` words with its conjunction, at least 3; or
        two of them, the first closed so that the second can only belong where it stands."""
        if num_words >= 9 and not context.closed and self._chance(0.12):
            size = 4 + self._up_to(min(num_words - 9, 4))
            first = self._clause(size - 1, context._replace(closed=True))
            second = self._clause(num_words - size - 2, context)
            return Subordinate(conjunction, (first, second))
        return Subordinate(conjunction, (self._clause(num_words - 1, context),))

    def _subject(self, num_words: int, context: Context) -> tuple[Nominal, int]:
        """Return a subject and the number of words left for its predicate."""
        sense = self._pick(_SENSES)
        most = num_words - 1
        if sense == "tool":
            if num_words < 3 or num_words > 9:
                sense = "person"
            else:
                most = num_words - 2
        size = 1 + self._up_to(3)
        if num_words > 10 and context.depth < 3 and self._chance(0.3):
            size += 1 + self._up_to(6)
        size = min(size, most)
        plain = context.freedom is Freedom.PLAIN
        determiners = nominals.AFFIRMATIVE if plain else nominals.ANY
        # The verb follows, so that a relative clause in the subject always ends before it.
        inner = context._replace(closed=context.depth > 3)
        subject = self._nominals.nominal(
            size, _SUBJECTS[sense], determiners, nominals.ALL_PERSONS, inner
        )
        return subject, num_words - size

    def _relative(
        self, num_words: int, noun: Noun, plural: bool, context: Context
    ) -> RelativeClause:
        """Return a relative clause of `num_words` words with its pronoun: at least 2 for a living
        noun, 3 for others."""
        inner = Context(context.past, relative=True, depth=context.depth + 1)
        if num_words >= 3 and self._chance(0.5 if noun.sense in _LIVING else 0.75):
            gapped = self._gapped(self._pick(_GAP_FRAMES), num_words, noun, inner)
            if gapped is not None:
                return gapped
        if noun.sense == "person" and num_words >= 4 and self._chance(0.15):
            return self._possessive(num_words, inner)
        about = Subject(noun.sense, True, 2 if plural else 1, None)
        predicate = self._predicates.predicate(num_words - 1, about, inner)
        return RelativeClause(lexicon.NOMINATIVE, Clause(None, (predicate,)))

    def _gapped(
        self, frame: str, num_words: int, noun: Noun, context: Context
    ) -> RelativeClause | None:
        verbs = _VERBS_WITH_GAP.get((frame, noun))
        rest = num_words - (2 if frame == "oblique" else 1)
        if verbs is None or not 2 <= rest <= 12:
            return None
        size = min(1 + self._up_to(3), rest - 1)
        subject = self._nominals.nominal(
            size, lexicon.PERSONS, nominals.AFFIRMATIVE, nominals.ALL_PERSONS, context
        )
        predicate = self._predicates.gapped(rest - size, verbs, _about(subject), context)
        if predicate is None:
            return None
        return RelativeClause(predicate.verb.preposition, Clause(subject, (predicate,)))

    def _possessive(self, num_words: int, context: Context) -> RelativeClause:
        """Return `whose (…) dog …`."""
        adjectives: tuple[Adjective, ...] = ()
        noun = self._pick((*lexicon.ANIMALS, *nominals.KIN))
        if num_words > 4 and self._chance(0.5):
            adjectives = (self._pick(lexicon.ADJECTIVES[noun.sense]),)
        possessed = NounPhrase(noun, self._chance(0.3), lexicon.BARE, adjectives)
        about = Subject(noun.sense, True, 2 if possessed.plural else 1, possessed)
        rest = num_words - 2 - len(adjectives)
        predicate = self._predicates.predicate(rest, about, context)
        return RelativeClause(lexicon.GENITIVE, Clause(possessed, (predicate,)))


def _about(nominal: Nominal) -> Subject:
    match nominal:
        case NounPhrase():
            sense = nominal.noun.sense
        case Coordination():
            return _about(nominal.items[-1])._replace(
                definite=nominal.definite, person=2, nominal=nominal
            )
        case _:
            sense = "person"
    return Subject(sense, nominal.definite, person_index(nominal, None), nominal)
