"""Random predicates of an exact number of English words."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from shapeshift.data.grammar import lexicon, nominals
from shapeshift.data.grammar.english import verb_group
from shapeshift.data.grammar.lexicon import (
    BE,
    BELONG,
    SEE,
    VERBS,
    Conjunction,
    Modal,
    Noun,
    Preposition,
    Pronoun,
    ProperName,
    Tense,
    Verb,
)
from shapeshift.data.grammar.nominals import Context, Determiners, Freedom, Nominals
from shapeshift.data.grammar.tree import (
    Nominal,
    NounPhrase,
    Predicate,
    PrepositionalPhrase,
    Subordinate,
)


class Subject(NamedTuple):
    """The features of a subject that its predicate depends on."""

    sense: str
    definite: bool
    person: int  # 0 I, 1 he/she, 2 plural
    nominal: Nominal | None


_LIVING = ("person", "animal")
# English words that a frame needs besides the verb group and a preposition.
_FEWEST = {
    "intransitive": 0, "accusative": 1, "dative": 1, "ditransitive": 2,
    "oblique": 1, "direction": 2, "clause": 3, "dative_clause": 4, "copula": 1,
}  # fmt: skip
_VERBS = {
    (sense, frame): tuple(v for v in VERBS if v.frame == frame and sense in v.subjects)
    for sense in lexicon.SENSES
    for frame in _FEWEST
}
_ONE_WORD = {
    sense: tuple(verb for verb in _VERBS[sense, "intransitive"] if not verb.particle)
    for sense in lexicon.SENSES
}


def _weighted(**weights: int) -> tuple[str, ...]:
    return tuple(frame for frame, weight in weights.items() for _ in range(weight))


_SHORT = _weighted(intransitive=3, accusative=6, dative=3, oblique=2, direction=2, copula=3)
_MIDDLE = _weighted(
    intransitive=2, accusative=7, dative=4, ditransitive=4, oblique=4, direction=3, clause=4,
    dative_clause=1, copula=1,
)  # fmt: skip
_LONG = _weighted(accusative=4, dative=2, ditransitive=3, oblique=3, clause=8, dative_clause=4)
_ANIMAL = _weighted(intransitive=3, accusative=6, dative=3, copula=3)
_THING = _weighted(intransitive=1, dative=3, copula=4)

# What fills the frames of verbs other than the copula and those with a clause, in English order.
_SLOTS = {
    "intransitive": (),
    "accusative": ("object",),
    "dative": ("object",),
    "ditransitive": ("recipient", "object"),
    "oblique": ("oblique",),
    "direction": ("direction",),
}
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
            predicate = self._verb_group(self._pick(verbs), subject, context)
            free = num_words - len(verb_group(predicate, 1)) - _FEWEST[frame]
            free -= predicate.verb.preposition.num_words
            if free >= 0 and self._fill(predicate, free, subject, context):
                return predicate
        return self._fallback(num_words, subject, context)

    def gapped(
        self, num_words: int, verbs: Sequence[Verb], subject: Subject, context: Context
    ) -> Predicate | None:
        """Return a predicate whose object is a relative pronoun, or None if the verb drawn from
        `verbs` does not fit into `num_words`."""
        predicate = self._verb_group(self._pick(verbs), subject, context)
        free = num_words - len(verb_group(predicate, 1))
        if free < 0 or (free and predicate.verb.stative):
            return None
        if free >= 2 and predicate.verb.has_place:
            predicate.phrases["place"] = self._place(free, context)
        elif self._add_time(predicate, free, exactly=True):
            return None
        return predicate

    def _frames(self, num_words: int, subject: Subject, context: Context) -> tuple[str, ...]:
        if subject.sense == "animal":
            return _ANIMAL
        if subject.sense != "person":
            return _THING
        if num_words <= 3:
            return _SHORT
        return _MIDDLE if num_words <= 8 or context.closed or context.depth > 4 else _LONG

    def _verb_group(self, verb: Verb, subject: Subject, context: Context) -> Predicate:
        """Return a predicate of a verb with tense, modal and negation, and nothing else yet."""
        tense = Tense.PAST if context.past else Tense.PRESENT
        if context.freedom is Freedom.PLAIN:
            return Predicate(verb if verb.past != verb.base else SEE, tense)
        modal: Modal | None = None
        copula = verb.frame == "copula"
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
        return Predicate(verb, tense, modal, negated)

    def _fallback(self, num_words: int, subject: Subject, context: Context) -> Predicate:
        """Return a predicate that fits any length: sees …, is old, belongs to …."""
        tense = Tense.PAST if context.past else Tense.PRESENT
        living = subject.sense in _LIVING
        if living or num_words > 2:
            verb, num_words = (SEE, num_words - 1) if living else (BELONG, num_words - 2)
            determiners = nominals.AFFIRMATIVE
            phrase = self._object(
                num_words, verb.preposition, verb.objects, determiners, subject, context
            )
            return Predicate(verb, tense, phrases={"object": phrase})
        return Predicate(BE, tense, adjective=self._pick(lexicon.ADJECTIVES[subject.sense]))

    def _fill(self, predicate: Predicate, free: int, subject: Subject, context: Context) -> bool:
        """Add objects and adverbials to a verb group; return whether they make up the words."""
        verb = predicate.verb
        if context.front and not verb.stative:
            free = self._add_time(predicate, free)
        fronted = predicate.time is not None
        match verb.frame:
            case "copula":
                return self._fill_copula(predicate, free, subject)
            case "clause" | "dative_clause":
                return self._fill_clause(predicate, free, subject, context)
        # Behind a long object an adverb would forbid every relative clause in it.
        if not (fronted or verb.stative) and free <= 8:
            free = self._add_adverb(predicate, free)
        closed = context.closed or (predicate.time is not None and not fronted)
        slots = [*_SLOTS[verb.frame]]
        if verb.for_someone and free >= 2 and self._chance(0.35):
            slots.append("beneficiary")
            free -= 2
        if free >= 2 and verb.has_place and (not slots or self._chance(0.2)):
            slots.append("place")
            free -= 2
        if free and not slots:
            if predicate.time is None:
                free = self._add_time(predicate, free, exactly=True)
            return free == 0
        # In the English order; the last takes the words that are left over.
        for slot in slots[:-1]:
            extra = min(self._up_to(2), free)
            free -= extra
            self._fill_slot(predicate, slot, extra, subject, context._replace(closed=True))
        for slot in slots[-1:]:
            self._fill_slot(predicate, slot, free, subject, context._replace(closed=closed))
        return True

    def _add_adverb(self, predicate: Predicate, free: int) -> int:
        """Perhaps add an adverb if there is room; return the words still free."""
        if self._chance(0.25):
            return self._add_time(predicate, free)
        is_complex = predicate.negated or predicate.modal or predicate.tense is Tense.FUTURE
        if not self._chance(0.15) or free == 0 or is_complex:
            return free
        predicate.frequency = self._pick(_FREQUENCIES[predicate.tense])
        return free - 1

    def _add_time(self, predicate: Predicate, free: int, *, exactly: bool = False) -> int:
        """Add a time adverbial if there is room; return the words still free."""
        if free == 1:
            predicate.time = self._pick(_SHORT_TIMES[predicate.tense])
        elif free:
            time = self._pick(_TIMES[predicate.tense])
            if time.num_words <= free and not (exactly and time.num_words != free):
                predicate.time = time
        return free - (predicate.time.num_words if predicate.time is not None else 0)

    def _fill_copula(self, predicate: Predicate, free: int, subject: Subject) -> bool:
        # No white bird is brown, nor a tired man tired.
        used = subject.nominal.adjectives if isinstance(subject.nominal, NounPhrase) else ()
        ranks = [adjective.rank for adjective in used]
        adjectives = lexicon.ADJECTIVES[subject.sense]
        predicate.adjective = self._pick([a for a in adjectives if a.rank not in ranks])
        passing = predicate.adjective.rank == 3  # tired today, but not big today
        if free and passing and self._chance(0.5):
            free = self._add_time(predicate, free, exactly=free != 2)
        if free == 1 and predicate.adjective.rank == 4:  # very brown
            return False
        predicate.very = free == 1
        return free <= 1

    def _fill_clause(
        self, predicate: Predicate, free: int, subject: Subject, context: Context
    ) -> bool:
        if context.closed:
            return False
        if predicate.verb.frame == "dative_clause":
            extra = min(self._up_to(2), free)
            free -= extra
            determiners = nominals.DEFINITE if predicate.negated else nominals.AFFIRMATIVE
            inner = context._replace(closed=True)
            predicate.phrases["recipient"] = self._object(
                1 + extra, lexicon.DATIVE, lexicon.PERSONS, determiners, subject, inner
            )
        inner = Context(context.past, relative=context.relative, depth=context.depth + 1)
        predicate.complement = self._derive_complement(3 + free, lexicon.THAT, inner)
        return True

    def _fill_slot(
        self, predicate: Predicate, slot: str, extra: int, subject: Subject, context: Context
    ) -> None:
        """Fill one slot with `extra` words more than it needs."""
        preposition, pool = predicate.verb.preposition, predicate.verb.objects
        match slot:
            case "direction":
                predicate.phrases[slot] = self._direction(1 + extra, pool, context)
                return
            case "place":
                predicate.phrases[slot] = self._place(2 + extra, context)
                return
            case "recipient":
                preposition, pool = lexicon.DATIVE, lexicon.PERSONS
                determiners = nominals.DEFINITE
            case "beneficiary":
                preposition, pool = lexicon.FOR, lexicon.PERSONS
                determiners = nominals.UNDER_NEGATION
            case _ if predicate.negated:
                determiners = nominals.UNDER_NEGATION
            case _ if subject.definite and predicate.frequency is None:
                determiners = nominals.ANY
            case _:
                determiners = nominals.AFFIRMATIVE
        predicate.phrases[slot] = self._object(
            1 + extra, preposition, pool, determiners, subject, context
        )

    def _object(
        self,
        num_words: int,
        preposition: Preposition,
        pool: tuple[Noun, ...],
        determiners: Determiners,
        subject: Subject,
        context: Context,
    ) -> PrepositionalPhrase:
        """Return an object that is not the subject itself: no `I see me`, no `Anna sees Anna`."""
        first = isinstance(subject.nominal, Pronoun) and subject.nominal.first_person
        pronouns = nominals.THIRD_PERSON if first else nominals.ALL_PERSONS
        nominal = self._nominals.nominal(num_words, pool, determiners, pronouns, context)
        if isinstance(nominal, ProperName) and nominal is subject.nominal:
            nominal = lexicon.THEY
        return PrepositionalPhrase(preposition, nominal)

    def _direction(
        self, num_words: int, pool: tuple[Noun, ...], context: Context
    ) -> PrepositionalPhrase:
        if num_words == 1:
            return PrepositionalPhrase(lexicon.TO_CITY, self._pick(lexicon.CITIES))
        goal = self._nominals.nominal(num_words, pool, nominals.ONE_PLACE, (), context)
        return PrepositionalPhrase(lexicon.TO, goal)

    def _place(self, num_words: int, context: Context) -> PrepositionalPhrase:
        """Return a place of `num_words` words with its preposition, at least 2."""
        if num_words == 2:
            return PrepositionalPhrase(lexicon.IN, self._pick(lexicon.CITIES))
        preposition, pool = lexicon.IN, lexicon.PLACES
        if self._chance(0.35):
            other = self._pick(lexicon.AT_BUILDING)
            if num_words - other.num_words >= 2:
                preposition, pool = other, lexicon.BUILDINGS
        rest = num_words - preposition.num_words
        place = self._nominals.nominal(rest, pool, nominals.ONE_PLACE, (), context)
        return PrepositionalPhrase(preposition, place)
