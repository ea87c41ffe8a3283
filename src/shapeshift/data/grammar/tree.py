"""Derivation trees of the built-in grammar, which both languages share, and the two ways to write
them.

A node holds words and features (number, tense, definiteness, …), but no word order and no
inflection: its methods `in_english` and `in_german` add those, each for its own language. A comma
is a word of its own until `write`.

A German clause is laid out in fields: front, finite verb, middle field, verbs at the end, and what
follows them: the relative clause of the last phrase in the middle field (er hat den Hund gesehen,
der schläft) and subordinate clauses.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from shapeshift.data.grammar import lexicon
from shapeshift.data.grammar.lexicon import Case, Pronoun, ProperName, Tense, Word

_COMMA = ","

# For I, he and they; for ich, er and wir.
_BE_PRESENT, _BE_PAST = ("am", "is", "are"), ("was", "was", "were")
_HAVE, _DO = ("have", "has", "have"), ("do", "does", "do")
_HABEN, _SEIN = ("habe", "hat", "haben"), ("bin", "ist", "sind")
_WERDEN = ("werde", "wird", "werden")

_GERMAN_ORDER = ("recipient", "object", "beneficiary", "place", "oblique", "direction")
_CONTRACTIONS = {"in dem": "im", "an dem": "am", "von dem": "vom", "zu dem": "zum", "zu der": "zur"}


@dataclass(slots=True)
class NounPhrase:
    """A noun with what belongs to it. With a `possessor` (`the boy's dog`: der Hund des Jungen)
    the determiner is ignored. The modifier stands behind the noun."""

    noun: lexicon.Noun
    plural: bool
    determiner: lexicon.Determiner
    adjectives: tuple[lexicon.Adjective, ...] = ()
    possessor: NounPhrase | ProperName | None = None
    modifier: PrepositionalPhrase | RelativeClause | None = None

    @property
    def sense(self) -> str:
        """Semantic class."""
        return self.noun.sense

    @property
    def person(self) -> int:
        """1 for the singular, 2 for the plural: the index into a verb's forms."""
        return 2 if self.plural else 1

    @property
    def definite(self) -> bool:
        """Whether the phrase is definite."""
        return self.possessor is not None or self.determiner.definite

    @property
    def column(self) -> int:
        """Column of an inflection table: the gender in the singular, 3 in the plural."""
        return 3 if self.plural else self.noun.gender

    def in_english(self, **_: bool) -> list[str]:
        determiner: list[str] = []
        if self.possessor is not None:
            determiner = self.possessor.in_english()
            determiner[-1] += "'" if self.possessor.plural and determiner[-1][-1] == "s" else "'s"
        noun = self.noun.plural if self.plural else self.noun.singular
        words = [*(adjective.english for adjective in self.adjectives), noun]
        if self.possessor is None and (article := self.determiner.english[self.plural]):
            determiner = ["an" if article == "a" and words[0][0] in "aeiou" else article]
        if isinstance(self.modifier, RelativeClause):
            words += self.modifier.in_english(self)
        elif self.modifier is not None:
            words += self.modifier.in_english()
        return determiner + words

    def in_german(
        self, case: Case = Case.NOMINATIVE, *, bare: bool = False, kein: bool = False
    ) -> list[str]:
        """Return the German words; `kein` replaces the determiner, `bare` leaves out a relative
        clause."""
        determiner = lexicon.NO if kein else self.determiner
        declension = determiner.declension
        if isinstance(self.possessor, ProperName):
            words, declension = [self.possessor.german + "s"], "strong"
        else:
            if self.possessor is not None:
                determiner, declension = lexicon.THE, "weak"
            words = [determiner.forms[case][self.column]]
        if self.adjectives:
            ending = lexicon.ENDINGS[declension][case][self.column]
            words += [adjective.stem + ending for adjective in self.adjectives]
        words.append(self.noun.forms[self.plural][case])
        if isinstance(self.possessor, NounPhrase):
            words += self.possessor.in_german(Case.GENITIVE)
        match self.modifier:
            case PrepositionalPhrase():
                words += self.modifier.in_german()
            case RelativeClause() if not bare:
                words += self.modifier.in_german(self)
        return words


@dataclass(slots=True)
class Coordination:
    """Two or more phrases joined by `and`: third person plural. All but the last are simple
    (no modifier), so that `and` always joins what stands nearest."""

    items: tuple[Nominal, ...]
    person: ClassVar[int] = 2

    @property
    def sense(self) -> str:
        """Semantic class of the last item."""
        return self.items[-1].sense

    @property
    def definite(self) -> bool:
        """Whether all items are definite."""
        return all(item.definite for item in self.items)

    def in_english(self, **_: bool) -> list[str]:
        return _coordinate([item.in_english() for item in self.items], "and")

    def in_german(self, case: Case = Case.NOMINATIVE, **_: bool) -> list[str]:
        return _coordinate([item.in_german(case) for item in self.items], "und")


Nominal = Pronoun | ProperName | NounPhrase | Coordination


@dataclass(slots=True)
class PrepositionalPhrase:
    """A noun phrase and what governs it: a preposition, or a case alone."""

    preposition: lexicon.Preposition
    object: Nominal

    def in_english(self) -> list[str]:
        return [self.preposition.english, *self.object.in_english()]

    def in_german(self, *, bare: bool = False) -> list[str]:
        """Return the German words, with a contraction such as `im`."""
        preposition = self.preposition.german
        words = self.object.in_german(self.preposition.case, bare=bare)
        # Only before a definite article, and not before a coordination: zu dem Mann und der Frau.
        if isinstance(self.object, NounPhrase) and not self.object.plural:
            contracted = _CONTRACTIONS.get(f"{preposition} {words[0]}")
            if contracted is not None:
                return [contracted, *words[1:]]
        return [preposition, *words]


@dataclass(slots=True)
class Predicate:
    """A verb with all that depends on it, but not its subject. `phrases` are its objects and places
    by role, in the English order: `recipient`, `object`, `oblique`, `direction`, `beneficiary`,
    `place`."""

    verb: lexicon.Verb
    tense: Tense
    modal: lexicon.Modal | None = None
    negated: bool = False
    phrases: dict[str, PrepositionalPhrase] = field(default_factory=dict)
    time: Word | None = None
    frequency: Word | None = None
    adjective: lexicon.Adjective | None = None
    very: bool = False
    complement: Subordinate | None = None

    def english_verbs(self, person: int) -> list[str]:
        """Return the verb with its auxiliaries, `not` and particle: as many words for every
        person, which is 0 for I, 1 for he and she, 2 for any plural."""
        verb, tense = self.verb, self.tense
        past, negation = tense is Tense.PAST, ["not"] * self.negated
        if self.modal is not None:
            forms = self.modal[tense]["negated" if self.negated else "english"]
            words = [*forms[person].split(), verb.base]
        elif tense is Tense.FUTURE:
            words = ["will", *negation, verb.base]
        elif tense is Tense.PERFECT:
            words = [_HAVE[person], *negation, verb.participle]
        elif verb.frame == "copula":
            words = [(_BE_PAST if past else _BE_PRESENT)[person], *negation]
        elif negation:
            words = ["did" if past else _DO[person], "not", verb.base]
        else:
            words = [verb.past if past else verb.third if person == 1 else verb.base]
        return words + [verb.particle] * bool(verb.particle)

    def in_english(self, person: int) -> list[str]:
        words = self.english_verbs(person)
        if self.frequency is not None:
            # often helps; has often helped; is often tired
            after_first = self.tense is Tense.PERFECT or self.verb.frame == "copula"
            words.insert(int(after_first), self.frequency.english)
        if self.adjective is not None:
            words += ["very"] * self.very + [self.adjective.english]
        for phrase in self.phrases.values():
            words += phrase.in_english()
        if self.time is not None:
            words.append(self.time.english)
        return words + (self.complement.in_english() if self.complement is not None else [])

    def in_german(self, person: int, subject: list[str], clause: Clause, second: bool) -> list[str]:
        """Return the German words with the subject, unless it stands in front, where the finite
        verb comes `second`, or else last."""
        finite, prefix, nonfinite = self._german_verbs(person)
        phrases = [self.phrases[role] for role in _GERMAN_ORDER if role in self.phrases]
        pronouns, middle = self._middle_field(phrases)
        # Gestern rief uns der Arzt an: a pronoun comes before a subject that is none.
        start = subject + pronouns if isinstance(clause.subject, Pronoun) else pronouns + subject
        if second:
            words = [finite, *start, *middle, prefix, nonfinite]
        else:
            words = [*start, *middle, nonfinite, prefix + finite]
        last = phrases[-1].object if phrases else None
        if self.complement is not None:
            words += self.complement.in_german()
        elif isinstance(last, NounPhrase) and isinstance(last.modifier, RelativeClause):
            words += last.modifier.in_german(last)
        return words

    def _german_verbs(self, person: int) -> tuple[str, str, str]:
        """Return (finite verb, separated prefix, non-finite verb); what is missing is empty."""
        verb, infinitive = self.verb, self.verb.prefix + self.verb.infinitive
        if self.modal is not None:
            return self.modal[self.tense]["german"][person], "", infinitive
        match self.tense:
            case Tense.PRESENT:
                return verb.german_present[person], verb.prefix, ""
            case Tense.PAST:
                return verb.german_past[person == 2], verb.prefix, ""
            case Tense.PERFECT:
                auxiliary = _SEIN if verb.with_sein else _HABEN
                return auxiliary[person], "", verb.german_participle
            case Tense.FUTURE:
                return _WERDEN[person], "", infinitive

    def _middle_field(self, phrases: list[PrepositionalPhrase]) -> tuple[list[str], list[str]]:
        """Return the pronouns, and everything between subject and pronouns and the verbs at the
        end.

        Order: adverb, noun phrases (dative first), `nicht`, für-phrase, place, prepositional
        object or direction, adjective. With `nicht` the noun phrases come before the adverb.
        """
        objects = [phrase for phrase in phrases if not phrase.preposition.german]
        # `not` with an indefinite object is kein: does not buy a book, kauft kein Buch. Of two
        # objects it is the accusative, the last one.
        target = objects[-1].object if objects else None
        kein = self.negated and isinstance(target, NounPhrase) and not target.definite
        pronouns: list[str] = []
        nouns: list[str] = []
        for phrase in objects:
            words = pronouns if isinstance(phrase.object, Pronoun) else nouns
            words += phrase.object.in_german(
                phrase.preposition.case,
                bare=phrase is phrases[-1],
                kein=kein and phrase.object is target,
            )
        adverbs = [adverb.german for adverb in (self.time, self.frequency) if adverb]
        words = [*nouns, *adverbs, "nicht"] if self.negated and not kein else adverbs + nouns
        for phrase in phrases[len(objects) :]:
            words += phrase.in_german(bare=phrase is phrases[-1])
        if self.adjective is not None:
            words += ["sehr"] * self.very + [self.adjective.predicative]
        return pronouns, words


@dataclass(slots=True)
class Clause:
    """A subject and one or more predicates joined by `and`. In a relative clause whose pronoun is
    the subject, `subject` is None. Before a main clause of one predicate may stand its time, its
    place or a subordinate clause: `front`."""

    subject: Nominal | None
    predicates: tuple[Predicate, ...]
    adverbial: Subordinate | None = None
    front: Word | PrepositionalPhrase | Subordinate | None = None

    def in_english(self, person: int = 1) -> list[str]:
        """Return the English words; `person` is that of the noun a relative pronoun refers to."""
        front = [] if self.front is None else [*self.front.in_english(), _COMMA]
        subject = [] if self.subject is None else self.subject.in_english(subject=True)
        person = person if self.subject is None else self.subject.person
        predicates = _coordinate([each.in_english(person) for each in self.predicates], "and")
        adverbial = [] if self.adverbial is None else self.adverbial.in_english()
        return [*front, *subject, *predicates, *adverbial]

    def in_german(self, person: int = 1, *, verb_second: bool = False) -> list[str]:
        """Return a main clause (verb second: one phrase, the finite verb, the rest), or everything
        after the conjunction or the relative pronoun of another (verb last)."""
        front, subject = [] if self.subject is None else self.subject.in_german(), []
        if self.front is not None:
            front, subject = self.front.in_german(), front
        if isinstance(self.front, Subordinate):
            front = front[1:]  # no comma between und and weil
        person = person if self.subject is None else self.subject.person
        parts = [x.in_german(person, subject, self, verb_second) for x in self.predicates]
        adverbial = [] if self.adverbial is None else self.adverbial.in_german()
        return [*front, *_coordinate(parts, "und"), *adverbial]


@dataclass(slots=True)
class Subordinate:
    """One or more clauses, each after the same subordinating conjunction, joined by `and`."""

    conjunction: lexicon.Conjunction
    clauses: tuple[Clause, ...]

    def in_english(self) -> list[str]:
        conjunction = self.conjunction.english
        return _coordinate([[conjunction, *each.in_english()] for each in self.clauses], "and")

    def in_german(self) -> list[str]:
        """Return the German words between commas."""
        past = self.clauses[0].predicates[0].tense is Tense.PAST
        conjunction = self.conjunction.german_past if past else self.conjunction.german
        parts = [[conjunction, *each.in_german()] for each in self.clauses]
        return [_COMMA, *_coordinate(parts, "und"), _COMMA]


@dataclass(slots=True)
class RelativeClause:
    """A relative clause; what the pronoun stands for is missing from `clause`. `preposition`
    governs the pronoun: a nominative is the subject, a genitive the possessor of the subject."""

    preposition: lexicon.Preposition
    clause: Clause

    def in_english(self, antecedent: NounPhrase) -> list[str]:
        person, preposition = antecedent.sense == "person", self.preposition.english
        match self.preposition.case:
            case Case.NOMINATIVE:
                pronoun = "who" if person else "that"
            case Case.GENITIVE:
                pronoun = "whose"
            case _:
                pronoun = "whom" if person else "which" if preposition else "that"
        return [preposition, pronoun, *self.clause.in_english(antecedent.person)]

    def in_german(self, antecedent: NounPhrase) -> list[str]:
        """Return the German words between commas."""
        pronoun = lexicon.ENDINGS["relative"][self.preposition.case][antecedent.column]
        clause = self.clause.in_german(antecedent.person)
        return [_COMMA, self.preposition.german, pronoun, *clause, _COMMA]


@dataclass(slots=True)
class Sentence:
    """Main clauses; `conjunctions[i]` joins clause i to clause i + 1."""

    clauses: tuple[Clause, ...]
    conjunctions: tuple[lexicon.Conjunction, ...] = ()

    def in_english(self) -> str:
        conjunctions = [each.english for each in self.conjunctions]
        return _write([clause.in_english() for clause in self.clauses], conjunctions)

    def in_german(self) -> str:
        conjunctions = [each.german for each in self.conjunctions]
        return _write([each.in_german(verb_second=True) for each in self.clauses], conjunctions)


def _write(clauses: list[list[str]], conjunctions: list[str]) -> str:
    """Return main clauses as a sentence: a comma before each conjunction, a capital letter, a full
    stop. Empty words are left out; where two commas meet, or one meets the full stop, one goes."""
    words: list[str] = []
    for conjunction, clause in zip(["", *conjunctions], clauses, strict=True):
        words += [_COMMA, conjunction, *clause]
    text = " ".join(filter(None, words))
    while " , ," in text:
        text = text.replace(" , ,", " ,")
    text = text.replace(" ,", _COMMA).strip(", ")
    return text[0].upper() + text[1:] + "."


def _coordinate(items: list[list[str]], conjunction: str) -> list[str]:
    """Return the words of `a, b and c`."""
    if len(items) == 1:
        return items[0]
    words = [*items[0]]
    for item in items[1:-1]:
        words += [_COMMA, *item]
    return [*words, conjunction, *items[-1]]
