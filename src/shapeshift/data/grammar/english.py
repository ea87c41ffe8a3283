"""The English side of a derivation."""

from __future__ import annotations

from shapeshift.data.grammar.lexicon import Case, Pronoun, Tense, Word
from shapeshift.data.grammar.text import COMMA, coordinate, write
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
    person_index,
)

_BE_PRESENT = ("am", "is", "are")
_BE_PAST = ("was", "was", "were")
_HAVE = ("have", "has", "have")
_DO = ("do", "does", "do")


def linearise_english(sentence: Sentence) -> str:
    """Return the English sentence: capital first letter, commas, full stop."""
    return write(map(_clause, sentence.clauses), (x.english for x in sentence.conjunctions))


def _clause(clause: Clause, antecedent: NounPhrase | None = None) -> list[str]:
    person = person_index(clause.subject, antecedent)
    front = [] if clause.front is None else [*_words(clause.front), COMMA]
    subject = _words(clause.subject, subject=True)
    predicates = coordinate([_predicate(each, person) for each in clause.predicates], "and")
    return [*front, *subject, *predicates, *_words(clause.adverbial)]


def _words(
    node: Word | Nominal | PrepositionalPhrase | Subordinate | None, *, subject: bool = False
) -> list[str]:
    match node:
        case None:
            return []
        case PrepositionalPhrase():
            return [node.preposition.english, *_words(node.object)]
        case NounPhrase():
            return _noun_phrase(node)
        case Pronoun():
            return [node.english[0 if subject else 1]]
        case Word():
            return [node.english]
        case Coordination():
            return coordinate([_words(item) for item in node.items], "and")
        case Subordinate():
            conjunction = node.conjunction.english
            return coordinate([[conjunction, *_clause(each)] for each in node.clauses], "and")


def _predicate(predicate: Predicate, person: int) -> list[str]:
    words = verb_group(predicate, person)
    if predicate.frequency is not None:
        # often helps; has often helped; is often tired
        after_first = predicate.tense is Tense.PERFECT or predicate.verb.frame == "copula"
        words.insert(int(after_first), predicate.frequency.english)
    if predicate.adjective is not None:
        words += ["very"] * predicate.very + [predicate.adjective.english]
    for phrase in predicate.phrases.values():
        words += _words(phrase)
    if predicate.time is not None:
        words.append(predicate.time.english)
    return words + _words(predicate.complement)


def verb_group(predicate: Predicate, person: int) -> list[str]:
    """Return the verb with its auxiliaries, `not` and particle; `person` as in `person_index`.
    There are as many words for every person."""
    verb, tense = predicate.verb, predicate.tense
    particle = [verb.particle] if verb.particle else []
    if predicate.modal is not None:
        modal = predicate.modal.english[tense, predicate.negated][person]
        return [*modal.split(), verb.base, *particle]
    negation = ["not"] if predicate.negated else []
    if tense is Tense.FUTURE:
        return ["will", *negation, verb.base, *particle]
    if tense is Tense.PERFECT:
        return [_HAVE[person], *negation, verb.participle, *particle]
    past = tense is Tense.PAST
    if verb.frame == "copula":
        return [(_BE_PAST if past else _BE_PRESENT)[person], *negation]
    if negation:
        return ["did" if past else _DO[person], "not", verb.base, *particle]
    finite = verb.past if past else verb.third if person == 1 else verb.base
    return [finite, *particle]


def _noun_phrase(phrase: NounPhrase) -> list[str]:
    determiner: list[str] = []
    if phrase.possessor is not None:
        determiner = _words(phrase.possessor)
        determiner[-1] += "'" if phrase.possessor.plural and determiner[-1][-1] == "s" else "'s"
    noun = phrase.noun.plural if phrase.plural else phrase.noun.singular
    words = [*(adjective.english for adjective in phrase.adjectives), noun]
    if phrase.possessor is None and (article := phrase.determiner.english[phrase.plural]):
        determiner = ["an" if article == "a" and words[0][0] in "aeiou" else article]
    if isinstance(phrase.modifier, RelativeClause):
        words += _relative(phrase.modifier, phrase)
    else:
        words += _words(phrase.modifier)
    return determiner + words


def _relative(relative: RelativeClause, antecedent: NounPhrase) -> list[str]:
    person, preposition = antecedent.noun.sense == "person", relative.preposition.english
    match relative.preposition.case:
        case Case.NOMINATIVE:
            pronoun = "who" if person else "that"
        case Case.GENITIVE:
            pronoun = "whose"
        case _:
            pronoun = "whom" if person else "which" if preposition else "that"
    return [preposition, pronoun, *_clause(relative.clause, antecedent)]
