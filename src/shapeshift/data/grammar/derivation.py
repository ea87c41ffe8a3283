"""Random derivations of an exact number of English words.

Every method gets the number of words of its part of the English sentence, uses some of them for
obligatory words, and passes the rest on. Nothing is cut off or thrown away afterwards.

English must not be ambiguous, or the German would depend on the reading: a clause, an adverb or
`and` always joins the nearest phrase that could take it. So a phrase that ends in a relative clause
is followed by nothing that could still belong to that relative clause (`Context.closed`), and no
because-clause is inside a relative clause.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Literal, NamedTuple, TypeVar

from shapeshift.data.grammar import choices, lexicon
from shapeshift.data.grammar.choices import LIVING, Determiners
from shapeshift.data.grammar.lexicon import Adjective, Noun, Pronoun, Tense
from shapeshift.data.grammar.tree import (
    Clause,
    Coordination,
    Nominal,
    NounPhrase,
    Predicate,
    PrepositionalPhrase,
    RelativeClause,
    Sentence,
    Subordinate,
)

T = TypeVar("T")


class Context(NamedTuple):
    """What a phrase must respect because of what stands around it.

    Attributes:
        past: whether the sentence is set in the past.
        freedom: which verb groups are allowed: `any`, `simple` (neither perfect nor future), or
            `plain` (one finite verb, affirmative).
        closed: true where something follows that a reader could mistake for part of a relative
            or subordinate clause; the phrase then has neither at its right edge.
        relative: true inside a relative clause, however deep.
        depth: how deeply the phrase is embedded.
        front: true where a time adverbial may open the clause.
    """

    past: bool
    freedom: Literal["any", "simple", "plain"] = "any"
    closed: bool = False
    relative: bool = False
    depth: int = 0
    front: bool = False

    @property
    def tense(self) -> Tense:
        """The simple tense."""
        return Tense.PAST if self.past else Tense.PRESENT


class Derivation:
    """Draws sentences; `rng` is the source of all randomness."""

    def __init__(self, rng: random.Random):
        self._random = rng.random

    def pick(self, options: Sequence[T]) -> T:
        """Return one of the options, all equally likely."""
        return options[int(self._random() * len(options))]

    def _chance(self, probability: float) -> bool:
        return self._random() < probability

    def _up_to(self, most: int) -> int:
        """Return a number from 0 to `most`, both included."""
        return int(self._random() * (most + 1))

    # Sentences and clauses

    def sentence(self, num_words: int) -> Sentence:
        """Return a sentence of exactly `num_words` English words, at least 3."""
        past = self._chance(0.35)
        clauses: list[Clause] = []
        conjunctions: list[lexicon.Conjunction] = []
        while num_words >= 9 and self._chance(0.12 if num_words < 16 else 0.6):
            size = 4 + self._up_to(min(num_words - 9, 16))
            clauses.append(self._main(size, past))
            conjunctions.append(self.pick((lexicon.AND, lexicon.AND, lexicon.BUT)))
            num_words -= size + 1
        clauses.append(self._main(num_words, past))
        return Sentence(tuple(clauses), tuple(conjunctions))

    def _main(self, num_words: int, past: bool) -> Clause:
        """Return a main clause, which may open with something other than its subject."""
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
        predicate = self._predicate(rest, subject, context)
        clause = Clause(subject, (predicate,))
        if context.front:
            clause.front, predicate.time = predicate.time, None
        return clause

    def _with_adverbial(self, num_words: int, context: Context, main: bool) -> Clause:
        """Return a clause with a because-clause, before or behind it."""
        conjunction = self.pick(lexicon.ADVERBIALS)
        if conjunction.only_present and context.past:
            conjunction = lexicon.ADVERBIALS[0]
        size = 3 + self._up_to(num_words - 5)  # with the conjunction; 2 words stay for the rest
        inner = Context(context.past, depth=context.depth + 1)
        outer = context._replace(front=False, depth=context.depth + 1)
        if conjunction.simple:
            inner, outer = inner._replace(freedom="simple"), outer._replace(freedom="simple")
        adverbial = self._subordinate(size, conjunction, inner)
        place = "front" if main and self._chance(0.4) else "adverbial"
        subject, rest = self._subject(num_words - size, outer)
        predicate = self._predicate(rest, subject, outer)
        return Clause(subject, (predicate,), **{place: adverbial})

    def _with_two_predicates(self, subject: Nominal, num_words: int, context: Context) -> Clause:
        """Return `subject …s and …s`. The first predicate is plain: in `they can sleep and work`,
        `can` might belong to one verb or to both."""
        size = 2 + self._up_to(min(num_words - 5, 4))
        inner = context._replace(front=False)
        first = self._predicate(size, subject, inner._replace(freedom="plain", closed=True))
        second = self._predicate(num_words - size - 1, subject, inner)
        return Clause(subject, (first, second))

    def _subordinate(
        self, num_words: int, conjunction: lexicon.Conjunction, context: Context
    ) -> Subordinate:
        """Return a subordinate clause of `num_words` words (at least 3) with its conjunction, or
        two coordinated ones. The first of two is closed, so that the second cannot be read as part
        of it."""
        if num_words >= 9 and not context.closed and self._chance(0.12):
            size = 4 + self._up_to(min(num_words - 9, 4))
            first = self._clause(size - 1, context._replace(closed=True))
            second = self._clause(num_words - size - 2, context)
            return Subordinate(conjunction, (first, second))
        return Subordinate(conjunction, (self._clause(num_words - 1, context),))

    def _subject(self, num_words: int, context: Context) -> tuple[Nominal, int]:
        """Return a subject and the number of words left for its predicate."""
        sense, most = self.pick(choices.SUBJECT_SENSES), num_words - 1
        if sense == "tool":
            if 3 <= num_words <= 9:
                most = num_words - 2
            else:
                sense = "person"
        size = 1 + self._up_to(3)
        if num_words > 10 and context.depth < 3 and self._chance(0.3):
            size += 1 + self._up_to(6)
        size = min(size, most)
        determiners = choices.AFFIRMATIVE if context.freedom == "plain" else choices.ANY
        # The verb follows, so that a relative clause in the subject always ends before it.
        inner = context._replace(closed=context.depth > 3)
        pool = choices.SUBJECTS[sense]
        subject = self._nominal(size, pool, determiners, choices.ALL_PERSONS, inner)
        return subject, num_words - size

    def _relative(
        self, num_words: int, noun: Noun, plural: bool, context: Context
    ) -> RelativeClause:
        """Return a relative clause of `num_words` words with its pronoun: at least 2 for a living
        noun, 3 for others."""
        inner = Context(context.past, relative=True, depth=context.depth + 1)
        if num_words >= 3 and self._chance(0.5 if noun.sense in LIVING else 0.75):
            gapped = self._gapped(self.pick(choices.WITH_GAP), num_words, noun, inner)
            if gapped is not None:
                return gapped
        if noun.sense == "person" and num_words >= 4 and self._chance(0.15):
            return self._possessive(num_words, inner)
        subject = NounPhrase(noun, plural, lexicon.THE)
        predicate = self._predicate(num_words - 1, subject, inner)
        return RelativeClause(lexicon.NOMINATIVE, Clause(None, (predicate,)))

    def _gapped(
        self, frame: str, num_words: int, noun: Noun, context: Context
    ) -> RelativeClause | None:
        """Return a relative clause whose pronoun is the object, or None if none fits."""
        verbs = choices.VERBS_WITH_GAP[frame, noun]
        rest = num_words - (2 if frame == "oblique" else 1)
        if not verbs or not 2 <= rest <= 12:
            return None
        size = min(1 + self._up_to(3), rest - 1)
        subject = self._nominal(
            size, lexicon.PERSONS, choices.AFFIRMATIVE, choices.ALL_PERSONS, context
        )
        predicate = self._verb_group(self.pick(verbs), subject, context)
        verb, free = predicate.verb, rest - size - len(predicate.english_verbs(1))
        if free < 0 or (free and verb.stative):
            return None
        if free >= 2 and verb.has_place:
            predicate.phrases["place"] = self._place(free, context)
        elif self._add_time(predicate, free, exactly=True):
            return None
        return RelativeClause(verb.preposition, Clause(subject, (predicate,)))

    def _possessive(self, num_words: int, context: Context) -> RelativeClause:
        """Return `whose (…) dog …`."""
        adjectives: tuple[Adjective, ...] = ()
        noun = self.pick((*lexicon.ANIMALS, *choices.KIN))
        if num_words > 4 and self._chance(0.5):
            adjectives = (self.pick(lexicon.ADJECTIVES[noun.sense]),)
        possessed = NounPhrase(noun, self._chance(0.3), lexicon.BARE, adjectives)
        definite = NounPhrase(noun, possessed.plural, lexicon.THE, adjectives)
        predicate = self._predicate(num_words - 2 - len(adjectives), definite, context)
        return RelativeClause(lexicon.GENITIVE, Clause(possessed, (predicate,)))

    # Predicates

    def _predicate(self, num_words: int, subject: Nominal, context: Context) -> Predicate:
        """Return a predicate of exactly `num_words` English words: at least 1, or at least 2 if the
        subject neither lives nor can burn."""
        if num_words == 1:
            verbs = choices.VERBS_OF[subject.sense, "intransitive"]
            verb = self.pick([verb for verb in verbs if not verb.particle])
            return Predicate(verb, context.tense)
        frames = _frames(num_words, subject, context)
        for _ in range(8):
            frame = self.pick(frames)
            verbs = choices.VERBS_OF[subject.sense, frame]
            if not verbs:
                continue
            predicate = self._verb_group(self.pick(verbs), subject, context)
            free = num_words - len(predicate.english_verbs(1)) - choices.FEWEST[frame]
            free -= predicate.verb.preposition.num_words
            if free >= 0 and self._fill(predicate, free, subject, context):
                return predicate
        # What fits any length: sees …, is old, belongs to ….
        living = subject.sense in LIVING
        if not living and num_words <= 2:
            adjective = self.pick(lexicon.ADJECTIVES[subject.sense])
            return Predicate(lexicon.BE, context.tense, adjective=adjective)
        predicate = Predicate(lexicon.SEE if living else lexicon.BELONG, context.tense)
        extra = num_words - (2 if living else 3)
        self._fill_slot(predicate, "object", extra, subject, context, choices.AFFIRMATIVE)
        return predicate

    def _verb_group(self, verb: lexicon.Verb, subject: Nominal, context: Context) -> Predicate:
        """Return a predicate with its verb, tense, modal and negation; objects follow later."""
        tense = context.tense
        if context.freedom == "plain":
            return Predicate(verb if verb.past != verb.base else lexicon.SEE, tense)
        modal: lexicon.Modal | None = None
        copula = verb.frame == "copula"
        if not (verb.stative or copula) and subject.sense in LIVING and self._chance(0.15):
            modal = self.pick(choices.PAST_MODALS if context.past else lexicon.MODALS)
        elif not context.past and context.freedom == "any":
            if not verb.stative and self._chance(0.28):
                tense = Tense.PERFECT
            elif self._chance(0.18):
                tense = Tense.FUTURE
        negated = subject.definite and self._chance(0.12)
        simple = tense in (Tense.PRESENT, Tense.PAST) and modal is None and not negated
        if verb.past == verb.base and simple and subject.person != 1:
            # They read: now or then? The English sentence must say it.
            negated = subject.definite
            verb = verb if negated else lexicon.SEE
        return Predicate(verb, tense, modal, negated)

    def _fill(self, predicate: Predicate, free: int, subject: Nominal, context: Context) -> bool:
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
        slots = [*choices.SLOTS[verb.frame]]
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
        predicate.frequency = self.pick(lexicon.FREQUENCIES[predicate.tense])
        return free - 1

    def _add_time(self, predicate: Predicate, free: int, *, exactly: bool = False) -> int:
        """Add a time adverbial if there is room; return the words still free."""
        times = lexicon.TIMES[predicate.tense]
        if free == 1:
            predicate.time = self.pick([time for time in times if time.num_words == 1])
        elif free:
            time = self.pick(times)
            if time.num_words <= free and not (exactly and time.num_words != free):
                predicate.time = time
        return free - (predicate.time.num_words if predicate.time is not None else 0)

    def _fill_copula(self, predicate: Predicate, free: int, subject: Nominal) -> bool:
        # No white bird is brown, nor a tired man tired.
        used = subject.adjectives if isinstance(subject, NounPhrase) else ()
        ranks = [adjective.rank for adjective in used]
        adjectives = lexicon.ADJECTIVES[subject.sense]
        predicate.adjective = self.pick([a for a in adjectives if a.rank not in ranks])
        passing = predicate.adjective.rank == 3  # tired today, but not big today
        if free and passing and self._chance(0.5):
            free = self._add_time(predicate, free, exactly=free != 2)
        if free == 1 and predicate.adjective.rank == 4:  # very brown
            return False
        predicate.very = free == 1
        return free <= 1

    def _fill_clause(
        self, predicate: Predicate, free: int, subject: Nominal, context: Context
    ) -> bool:
        if context.closed:
            return False
        if predicate.verb.frame == "dative_clause":
            extra = min(self._up_to(2), free)
            free -= extra
            determiners = choices.DEFINITE if predicate.negated else choices.AFFIRMATIVE
            closed = context._replace(closed=True)
            self._fill_slot(predicate, "recipient", extra, subject, closed, determiners)
        inner = Context(context.past, relative=context.relative, depth=context.depth + 1)
        predicate.complement = self._subordinate(3 + free, lexicon.THAT, inner)
        return True

    def _fill_slot(
        self,
        predicate: Predicate,
        slot: str,
        extra: int,
        subject: Nominal,
        context: Context,
        determiners: Determiners | None = None,
    ) -> None:
        """Fill one slot with `extra` words more than it needs."""
        verb, first = predicate.verb, isinstance(subject, Pronoun) and subject.first_person
        # Not the subject itself: no `I see me`, no `Anna sees Anna`.
        pronouns: tuple[Pronoun, ...] = choices.THIRD_PERSON if first else choices.ALL_PERSONS
        preposition, pool = verb.preposition, verb.objects
        match slot:
            case "place":
                predicate.phrases[slot] = self._place(2 + extra, context)
                return
            case "direction" if not extra:
                city = self.pick(lexicon.CITIES)
                predicate.phrases[slot] = PrepositionalPhrase(lexicon.TO_CITY, city)
                return
            case "direction":
                preposition, usual, pronouns = lexicon.TO, choices.ONE_PLACE, ()
            case "recipient":
                preposition, pool, usual = lexicon.DATIVE, lexicon.PERSONS, choices.DEFINITE
            case "beneficiary":
                preposition, pool, usual = lexicon.FOR, lexicon.PERSONS, choices.UNDER_NEGATION
            case _ if predicate.negated:
                usual = choices.UNDER_NEGATION
            case _ if subject.definite and predicate.frequency is None:
                usual = choices.ANY
            case _:
                usual = choices.AFFIRMATIVE
        nominal = self._nominal(1 + extra, pool, determiners or usual, pronouns, context)
        if isinstance(nominal, lexicon.ProperName) and nominal is subject:
            nominal = lexicon.THEY
        predicate.phrases[slot] = PrepositionalPhrase(preposition, nominal)

    def _place(self, num_words: int, context: Context) -> PrepositionalPhrase:
        """Return a place of `num_words` words with its preposition, at least 2."""
        if num_words == 2:
            return PrepositionalPhrase(lexicon.IN, self.pick(lexicon.CITIES))
        preposition, pool = lexicon.IN, lexicon.PLACES
        if self._chance(0.35):
            other = self.pick(lexicon.AT_BUILDING)
            if num_words - other.num_words >= 2:
                preposition, pool = other, lexicon.BUILDINGS
        rest = num_words - preposition.num_words
        place = self._nominal(rest, pool, choices.ONE_PLACE, (), context)
        return PrepositionalPhrase(preposition, place)

    # Noun phrases

    def _nominal(
        self,
        num_words: int,
        pool: tuple[Noun, ...],
        determiners: Determiners,
        pronouns: tuple[Pronoun, ...],
        context: Context,
    ) -> Nominal:
        """Return a phrase of exactly `num_words` English words: at least 1, or at least 2 if it may
        not be plural and its nouns are not persons. Its head is from `pool`, and one of the
        `pronouns` may stand for a person."""
        noun = self.pick(pool)
        if num_words == 1 and noun.sense == "person":
            return self.pick(lexicon.PERSON_NAMES) if self._chance(0.4) else self.pick(pronouns)
        if num_words <= 2 or (num_words <= 4 and self._chance(0.85)):
            return self._simple(num_words, noun, determiners)
        if num_words > 9 or not self._chance(0.15):
            modified = self._modified(num_words, noun, determiners, context)
            if modified is not None:
                return modified
        if num_words == 4 or (num_words == 3 and noun.sense != "person"):
            return self._simple(num_words, noun, determiners)
        return self._coordination(num_words, noun, pool, determiners)

    def _simple(self, num_words: int, noun: Noun, determiners: Determiners) -> NounPhrase:
        """Return a phrase of one to four words with no modifier after the noun."""
        plural = bool(determiners.plural) and (num_words == 1 or self._chance(0.3))
        if num_words == 1:
            return NounPhrase(noun, True, lexicon.BARE)
        determiner: lexicon.Determiner = lexicon.THE
        possessor: NounPhrase | lexicon.ProperName | None = None
        num_adjectives = num_words - 2
        if (noun.sense != "person" or noun in choices.KIN) and self._chance(0.1):
            if num_words == 2 or self._chance(0.5):
                possessor = self.pick(lexicon.PERSON_NAMES)
            else:
                person = self.pick(lexicon.PERSONS)
                article = choices.DEFINITE.singular
                possessor = NounPhrase(person, self._chance(0.3), self.pick(article))
                num_adjectives -= 1
        else:
            determiner = self.pick(determiners.plural if plural else determiners.singular)
            if determiner is lexicon.BARE and num_words > 3:
                determiner = lexicon.THE
            num_adjectives += determiner is lexicon.BARE
        adjectives: tuple[Adjective, ...] = ()
        if num_adjectives == 1:
            adjectives = (self.pick(lexicon.ADJECTIVES[noun.sense]),)
        elif num_adjectives == 2:
            adjectives = self.pick(choices.ADJECTIVE_PAIRS[noun.sense])
        return NounPhrase(noun, plural, determiner, adjectives, possessor)

    def _modified(
        self, num_words: int, noun: Noun, determiners: Determiners, context: Context
    ) -> NounPhrase | None:
        """Return a phrase with a modifier after the noun, or None if none fits."""
        if noun.sense == "person" and 4 <= num_words <= 6 and self._chance(0.3):
            phrase = self._simple(num_words - 2, noun, determiners)
            phrase.modifier = PrepositionalPhrase(lexicon.FROM, self.pick(lexicon.CITIES))
            return phrase
        attributes = choices.ATTRIBUTES.get(noun.sense)
        if attributes and 5 <= num_words <= 9 and self._chance(0.6 if context.closed else 0.2):
            head = 2 + self._up_to(min(2, num_words - 5))
            inner = context._replace(closed=True)
            thing = self._nominal(num_words - head - 1, attributes, choices.ONE_PLACE, (), inner)
            phrase = self._simple(head, noun, determiners)
            phrase.modifier = PrepositionalPhrase(lexicon.WITH, thing)
            return phrase
        if context.closed or num_words < (4 if noun.sense in LIVING else 5):
            return None
        head = 2 + (num_words > 5 and self._chance(0.4))
        phrase = self._simple(head, noun, determiners)
        # Behind `the boy's dog` it would not be clear in German who sleeps.
        if isinstance(phrase.possessor, NounPhrase):
            return None
        phrase.modifier = self._relative(num_words - head, noun, phrase.plural, context)
        return phrase

    def _coordination(
        self, num_words: int, noun: Noun, pool: tuple[Noun, ...], determiners: Determiners
    ) -> Coordination:
        """Return `a, b and c` of items without anything behind their nouns."""
        if noun.sense == "person" and num_words == 3:
            first = self.pick(lexicon.PERSON_NAMES)
            others = [name for name in lexicon.PERSON_NAMES if name is not first]
            return Coordination((first, self.pick(others)))
        determiners = choices.OF_COORDINATED.get(determiners, determiners)
        unused = [other for other in pool if other.sense == noun.sense and other is not noun]
        items: list[Nominal] = []
        rest = num_words - 1
        while rest:
            size = rest if items and rest <= 4 else 2 + self._up_to(min(4, rest - 2) - 2)
            items.append(self._simple(size, noun, determiners))
            rest -= size
            noun = unused.pop(self._up_to(len(unused) - 1)) if unused else self.pick(pool)
        return Coordination(tuple(items))


def _frames(num_words: int, subject: Nominal, context: Context) -> tuple[str, ...]:
    if subject.sense == "animal":
        return choices.OF_ANIMALS
    if subject.sense != "person":
        return choices.OF_THINGS
    if num_words <= 3:
        return choices.SHORT
    closed = context.closed or context.depth > 4
    return choices.MIDDLE if num_words <= 8 or closed else choices.LONG
