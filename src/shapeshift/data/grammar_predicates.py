"""Random predicates of an exact number of English words."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from shapeshift.data import grammar_lexicon as lexicon
from shapeshift.data import grammar_nominals as nominals
from shapeshift.data.grammar_english import verb_group_length
from shapeshift.data.grammar_nominals import Context, Determiners, Freedom, Nominals
from shapeshift.data.grammar_tree import (
    Adverb,
    Conjunction,
    Frame,
    Modal,
    Nominal,
    Noun,
    Predicate,
    PrepositionalPhrase,
    Pronoun,
    ProperName,
    Sense,
    Subordinate,
    Tense,
    Verb,
)
from shapeshift.data.grammar_verbs import BE, BELONG, SEE, VERBS, verbs_for


class Subject(NamedTuple):
    """What a predicate must know of its subject."""

    sense: Sense
    definite: bool
    person: int  # 0 I, 1 he/she, 2 plural
    nominal: Nominal | None


class VerbGroup(NamedTuple):
    """A verb with the features of its group."""

    verb: Verb
    tense: Tense
    modal: Modal | None
    negated: bool

    @property
    def num_words(self) -> int:
        """Number of English words."""
        return verb_group_length(self.verb, self.tense, self.modal, self.negated)


_LIVING = (Sense.PERSON, Sense.ANIMAL)
_VERBS = {(sense, frame): verbs_for(sense, frame) for sense in Sense for frame in Frame}
_ONE_WORD = {
    sense: tuple(verb for verb in _VERBS[sense, Frame.INTRANSITIVE] if not verb.particle)
    for sense in Sense
}
# English words that a frame needs besides the verb group.
_FEWEST = {
    Frame.INTRANSITIVE: 0, Frame.ACCUSATIVE: 1, Frame.DATIVE: 1, Frame.DITRANSITIVE: 2,
    Frame.OBLIQUE: 2, Frame.DIRECTION: 2, Frame.CLAUSE: 3, Frame.DATIVE_CLAUSE: 4, Frame.COPULA: 1,
}  # fmt: skip


def _weighted(**weights: int) -> tuple[Frame, ...]:
    return tuple(Frame[name.upper()] for name, weight in weights.items() for _ in range(weight))


_SHORT = _weighted(intransitive=3, accusative=6, dative=3, oblique=2, direction=2, copula=3)
_MIDDLE = _weighted(
    intransitive=2, accusative=7, dative=4, ditransitive=4, oblique=4, direction=3, clause=4,
    dative_clause=1, copula=1,
)  # fmt: skip
_LONG = _weighted(
    accusative=4, dative=2, ditransitive=3, oblique=3, clause=8, dative_clause=4
)
_ANIMAL = _weighted(intransitive=3, accusative=6, dative=3, copula=3)
_THING = _weighted(intransitive=1, dative=3, copula=4)
_TIMES = {tense: tuple(a for a in lexicon.TIMES if tense in a.tenses) for tense in Tense}
_SHORT_TIMES = {
    tense: tuple(adverb for adverb in times if adverb.num_words == 1)
    for tense, times in _TIMES.items()
}
_FREQUENCIES = {
    tense: tuple(a for a in lexicon.FREQUENCIES if tense in a.tenses) for tense in Tense
}
_PAST_MODALS = tuple(modal for modal in lexicon.MODALS if Tense.PAST in modal.german)

DeriveComplement = Callable[[int, Conjunction, Context], Subordinate]


class Predicates:
    """Draws predicates.

    Args:
        nominals: draws noun phrases; also the source of randomness.
        derive_complement: makes a subordinate clause from (number of words with its conjunction,
            conjunction, context).
    """

    def __init__(self, nominals: Nominals, derive_complement: DeriveComplement):
        self._nominals = nominals
        self._pick = nominals.pick
        self._chance = nominals.chance
        self._up_to = nominals.up_to
        self._derive_complement = derive_complement

    def predicate(self, num_words: int, subject: Subject, context: Context) -> Predicate:
        """Return a predicate of exactly `num_words` English words.

        Args:
            num_words: at least 1; at least 2 if the subject neither lives nor can burn.
            subject: its subject.
            context: what stands around it.
        """
        if num_words == 1:
            verb = self._pick(_ONE_WORD[subject.sense])
            return Predicate(verb, Tense.PAST if context.past else Tense.PRESENT)
        frames = self._frames(num_words, subject, context)
        for _ in range(8):
            frame = self._pick(frames)
            verbs = _VERBS[subject.sense, frame]
            if not verbs:
                continue
            group = self._group(self._pick(verbs), subject, context)
            free = num_words - group.num_words - _FEWEST[frame]
            if group.verb.preposition is not None:
                free -= group.verb.preposition.num_words - 1
            if free < 0:
                continue
            result = self._fill(group, free, subject, context)
            if result is not None:
                return result
        return self._fallback(num_words, subject, context)

    def gapped(
        self, num_words: int, verbs: tuple[Verb, ...], subject: Subject, context: Context
    ) -> Predicate | None:
        """Return a predicate whose object is a relative pronoun, or None if the verb drawn from
        `verbs` does not fit into `num_words`."""
        group = self._group(self._pick(verbs), subject, context)
        free = num_words - group.num_words
        if free < 0:
            return None
        predicate = Predicate(*group)
        if free == 1:
            predicate.time = self._pick(_SHORT_TIMES[group.tense])
        elif free:
            predicate.place = self._place(free, context)
        return predicate

    def _frames(
        self, num_words: int, subject: Subject, context: Context
    ) -> tuple[Frame, ...]:
        if subject.sense is Sense.ANIMAL:
            return _ANIMAL
        if subject.sense is not Sense.PERSON:
            return _THING
        if num_words <= 3:
            return _SHORT
        return _MIDDLE if num_words <= 8 or context.closed or context.depth > 4 else _LONG

    def _group(self, verb: Verb, subject: Subject, context: Context) -> VerbGroup:
        """Choose tense, modal and negation."""
        tense = Tense.PAST if context.past else Tense.PRESENT
        if context.freedom is Freedom.PLAIN:
            return VerbGroup(verb if verb.past != verb.base else SEE, tense, None, False)
        modal: Modal | None = None
        copula = verb.frame is Frame.COPULA
        if not (verb.stative or copula) and subject.sense in _LIVING and self._chance(0.15):
            modal = self._pick(_PAST_MODALS if context.past else lexicon.MODALS)
        elif not context.past and context.freedom is Freedom.ANY:
            if not verb.stative and self._chance(0.28):
                tense = Tense.PERFECT
            elif self._chance(0.18):
                tense = Tense.FUTURE
        negated = subject.definite and self._chance(0.12)
        simple = tense in (Tense.PRESENT, Tense.PAST) and modal is None and not negated
        if verb.past == verb.base and simple and subject.person != 1:
            # They read: now or then? The English sentence must say it.
            negated = subject.definite
            verb = verb if negated else SEE
        return VerbGroup(verb, tense, modal, negated)

    def _fallback(self, num_words: int, subject: Subject, context: Context) -> Predicate:
        """Return what always fits: sees …, is old, belongs to …."""
        tense = Tense.PAST if context.past else Tense.PRESENT
        if subject.sense in _LIVING:
            found = self._object(num_words - 1, SEE.objects, nominals.AFFIRMATIVE, subject, context)
            return Predicate(SEE, tense, accusative=found)
        if num_words > 2:
            owner = self._object(num_words - 2, BELONG.objects, nominals.AFFIRMATIVE, subject, context)
            return Predicate(BELONG, tense, dative=owner)
        return Predicate(BE, tense, adjective=self._pick(lexicon.ADJECTIVES[subject.sense]))

    def _fill(
        self, group: VerbGroup, free: int, subject: Subject, context: Context
    ) -> Predicate | None:
        """Add objects and adverbials to a verb group; None where they cannot make up the words."""
        predicate = Predicate(*group)
        if context.front and self._chance(0.5):
            free = self._add_time(predicate, free)
        fronted = predicate.time is not None
        match group.verb.frame:
            case Frame.COPULA:
                return self._fill_copula(predicate, free, subject)
            case Frame.CLAUSE | Frame.DATIVE_CLAUSE:
                return self._fill_clause(predicate, free, subject, context)
        trailing = False
        if not fronted:
            if self._chance(0.25):
                free = self._add_time(predicate, free)
                trailing = predicate.time is not None
            elif self._chance(0.15):
                free = self._add_frequency(predicate, free)
        places: list[str] = _SLOTS[group.verb.frame].copy()
        if group.verb.for_someone and free >= 2 and self._chance(0.35):
            places.append("beneficiary")
            free -= 2
        may_stand = not group.verb.stative and group.verb.frame is not Frame.DIRECTION
        if may_stand and free >= 2 and (not places or self._chance(0.2)):
            places.append("place")
            free -= 2
        if not places and free:
            add = self._add_frequency if predicate.time is not None else self._add_time
            free = add(predicate, free, exactly=True)
            if free:
                return None
        self._fill_slots(predicate, places, free, trailing, subject, context)
        return predicate
