"""The English side of a derivation."""

from __future__ import annotations

from functools import cache

from shapeshift.data.grammar.tree import (
    Clause,
    Coordination,
    Front,
    Modal,
    Nominal,
    NounPhrase,
    Predicate,
    PrepositionalPhrase,
    Pronoun,
    ProperName,
    RelativeClause,
    Role,
    Sentence,
    Subordinate,
    Tense,
    Verb,
    person_index,
)

_BE_PRESENT = ("am", "is", "are")
_BE_PAST = ("was", "was", "were")
_HAVE = ("have", "has", "have")
_DO = ("do", "does", "do")


def linearise_english(sentence: Sentence) -> str:
    """Return the English sentence: capital first letter, commas, full stop."""
    words: list[str] = []
    for number, clause in enumerate(sentence.clauses):
        if number:
            words[-1] += ","
            words.append(sentence.conjunctions[number - 1].english)
        words += _main(clause)
    text = " ".join(words)
    return text[0].upper() + text[1:] + "."


def _main(clause: Clause) -> list[str]:
    first = clause.predicates[0]
    front: list[str] = []
    match clause.front:
        case Front.TIME if first.time is not None:
            front = [first.time.english]
        case Front.PLACE if first.place is not None:
            front = _prepositional(first.place)
        case Front.ADVERBIAL if clause.adverbial is not None:
            front = _subordinate(clause.adverbial)
    if front:
        front[-1] += ","
    return front + _clause(clause, None)


def _clause(clause: Clause, antecedent: NounPhrase | None) -> list[str]:
    person = person_index(clause.subject, antecedent)
    words = [] if clause.subject is None else _nominal(clause.subject, subject=True)
    for number, predicate in enumerate(clause.predicates):
        if number:
            words.append("and")
        words += _predicate(predicate, person, clause.front)
    if clause.adverbial is not None and clause.front is not Front.ADVERBIAL:
        words += _subordinate(clause.adverbial)
    return words


def _subordinate(subordinate: Subordinate) -> list[str]:
    words: list[str] = []
    for clause in subordinate.clauses:
        if words:
            words.append("and")
        words.append(subordinate.conjunction.english)
        words += _clause(clause, None)
    return words


def _predicate(predicate: Predicate, person: int, front: Front) -> list[str]:
    words = verb_group(predicate.verb, predicate.tense, predicate.modal, predicate.negated, person)
    if predicate.frequency is not None:
        # often helps; has often helped; is often tired
        after_first = predicate.tense is Tense.PERFECT or predicate.verb.frame == "copula"
        words = [*words[:after_first], predicate.frequency.english, *words[after_first:]]
    if predicate.adjective is not None:
        words += ["very"] * predicate.very + [predicate.adjective.english]
    for nominal in (predicate.dative, predicate.accusative):
        if nominal is not None:
            words += _nominal(nominal)
    for phrase in (predicate.oblique, predicate.beneficiary):
        if phrase is not None:
            words += _prepositional(phrase)
    if predicate.place is not None and front is not Front.PLACE:
        words += _prepositional(predicate.place)
    if predicate.time is not None and front is not Front.TIME:
        words.append(predicate.time.english)
    if predicate.complement is not None:
        words += _subordinate(predicate.complement)
    return words


def verb_group(
    verb: Verb, tense: Tense, modal: Modal | None, negated: bool, person: int
) -> list[str]:
    """Return the verb with its auxiliaries, `not` and particle; `person` as in `person_index`."""
    particle = [verb.particle] if verb.particle else []
    if modal is not None:
        return [*modal.english[tense, negated][person].split(), verb.base, *particle]
    negation = ["not"] if negated else []
    if tense is Tense.FUTURE:
        return ["will", *negation, verb.base, *particle]
    if tense is Tense.PERFECT:
        return [_HAVE[person], *negation, verb.participle, *particle]
    past = tense is Tense.PAST
    if verb.frame == "copula":
        return [(_BE_PAST if past else _BE_PRESENT)[person], *negation]
    if negated:
        return ["did" if past else _DO[person], "not", verb.base, *particle]
    finite = verb.past if past else verb.third if person == 1 else verb.base
    return [finite, *particle]


@cache
def verb_group_length(verb: Verb, tense: Tense, modal: Modal | None, negated: bool) -> int:
    """Return the number of words in the verb group; it is the same for every person."""
    return len(verb_group(verb, tense, modal, negated, 1))


def _nominal(nominal: Nominal, *, subject: bool = False) -> list[str]:
    match nominal:
        case NounPhrase():
            return _noun_phrase(nominal)
        case Pronoun():
            return [nominal.english[0 if subject else 1]]
        case ProperName():
            return [nominal.english]
        case Coordination():
            words: list[str] = []
            *initial, last = nominal.items
            for item in initial:
                words += _nominal(item)
                words[-1] += ","
            words[-1] = words[-1][:-1]
            return [*words, "and", *_nominal(last)]


def _noun_phrase(phrase: NounPhrase) -> list[str]:
    determiner: list[str] = []
    if phrase.possessor is not None:
        determiner = _nominal(phrase.possessor)
        determiner[-1] += "'" if phrase.possessor.plural and determiner[-1][-1] == "s" else "'s"
    noun = phrase.noun.plural if phrase.plural else phrase.noun.singular
    words = [*(adjective.english for adjective in phrase.adjectives), noun]
    if phrase.possessor is None and (article := phrase.determiner.english[phrase.plural]):
        determiner = ["an" if article == "a" and words[0][0] in "aeiou" else article]
    match phrase.modifier:
        case PrepositionalPhrase():
            words += _prepositional(phrase.modifier)
        case RelativeClause():
            words += _relative(phrase.modifier, phrase)
    return determiner + words


def _prepositional(phrase: PrepositionalPhrase) -> list[str]:
    return [phrase.preposition.english, *_nominal(phrase.object)]


def _relative(relative: RelativeClause, antecedent: NounPhrase) -> list[str]:
    person = antecedent.noun.sense == "person"
    match relative.role:
        case Role.SUBJECT:
            pronoun = ["who" if person else "that"]
        case Role.ACCUSATIVE | Role.DATIVE:
            pronoun = ["whom" if person else "that"]
        case Role.POSSESSOR:
            pronoun = ["whose"]
        case Role.OBLIQUE:
            governed = relative.clause.predicates[0].verb.preposition
            assert governed is not None
            pronoun = [governed.english, "whom" if person else "which"]
    return pronoun + _clause(relative.clause, antecedent)
