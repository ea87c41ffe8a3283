"""The German side of a derivation: word order, case, commas.

A clause is laid out in fields: front, finite verb, middle field, verbs at the end, and what
follows them: the relative clause of the last phrase in the middle field (er hat den Hund gesehen,
der schläft) and subordinate clauses.
"""

from __future__ import annotations

from functools import cache

from shapeshift.data.grammar import lexicon
from shapeshift.data.grammar.lexicon import Case, Determiner, Noun, Pronoun, ProperName, Tense, Word
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

_HABEN = ("habe", "hat", "haben")
_SEIN = ("bin", "ist", "sind")
_WERDEN = ("werde", "wird", "werden")
_ORDER = ("recipient", "object", "beneficiary", "place", "oblique", "direction")
_CONTRACTIONS = {
    ("in", "dem"): "im",
    ("an", "dem"): "am",
    ("von", "dem"): "vom",
    ("zu", "dem"): "zum",
    ("zu", "der"): "zur",
}

# Of a kind of word, by case, then masculine, feminine, neuter, plural.
_ENDINGS: dict[str, list[tuple[str, ...]]] = {}
for _of, _, *_forms in map(dict.values, lexicon.read_table("endings.tsv")):
    _ENDINGS.setdefault(_of, []).append(tuple(_forms))


def linearise_german(sentence: Sentence) -> str:
    """Return the German sentence: capital first letter, commas, full stop."""
    clauses = (_clause(clause, verb_second=True) for clause in sentence.clauses)
    return write(clauses, (x.german for x in sentence.conjunctions))


def _clause(
    clause: Clause, antecedent: NounPhrase | None = None, *, verb_second: bool = False
) -> list[str]:
    """Return a main clause (verb second: one phrase, the finite verb, the rest), or everything
    after the conjunction or the relative pronoun of another (verb last)."""
    person = person_index(clause.subject, antecedent)
    front, subject = _words(clause.subject), []
    if clause.front is not None:
        front, subject = _words(clause.front), front
    if isinstance(clause.front, Subordinate):
        front = front[1:]  # no comma between und and weil
    parts = []
    for predicate in clause.predicates:
        finite, prefix, nonfinite = _verb_parts(predicate, person)
        phrases = [predicate.phrases[role] for role in _ORDER if role in predicate.phrases]
        pronouns, middle = _middle(predicate, phrases)
        # Gestern rief uns der Arzt an: a pronoun comes before a subject that is none.
        start = subject + pronouns if isinstance(clause.subject, Pronoun) else pronouns + subject
        if verb_second:
            words = [finite, *start, *middle, prefix, nonfinite]
        else:
            words = [*start, *middle, nonfinite, prefix + finite]
        last = phrases[-1].object if phrases else None
        if predicate.complement is not None:
            words += _subordinate(predicate.complement)
        elif isinstance(last, NounPhrase) and isinstance(last.modifier, RelativeClause):
            words += _relative(last.modifier, last)
        parts.append(words)
    return [*front, *coordinate(parts, "und"), *_words(clause.adverbial)]


def _words(
    node: Word | Nominal | PrepositionalPhrase | Subordinate | None,
    case: Case = Case.NOMINATIVE,
    *,
    kein: bool = False,
    bare: bool = False,
) -> list[str]:
    """Return the words of a node; `kein` replaces its determiner, `bare` leaves out its relative
    clause."""
    match node:
        case None:
            return []
        case NounPhrase():
            return _noun_phrase(node, case, kein, bare)
        case Pronoun():
            return [node.german[case]]
        case Word():
            return [node.german]
        case Coordination():
            return coordinate([_words(item, case) for item in node.items], "und")
        case PrepositionalPhrase():
            return _prepositional(node)
        case Subordinate():
            return _subordinate(node)


def _subordinate(subordinate: Subordinate) -> list[str]:
    conjunction = subordinate.conjunction
    parts = []
    for clause in subordinate.clauses:
        past = clause.predicates[0].tense is Tense.PAST
        parts.append([conjunction.german_past if past else conjunction.german, *_clause(clause)])
    return [COMMA, *coordinate(parts, "und"), COMMA]


def _relative(relative: RelativeClause, antecedent: NounPhrase) -> list[str]:
    preposition = relative.preposition
    column = _column(antecedent.noun, antecedent.plural)
    pronoun = _ENDINGS["relative"][preposition.case][column]
    clause = _clause(relative.clause, antecedent)
    return [COMMA, preposition.german, pronoun, *clause, COMMA]


def _middle(
    predicate: Predicate, phrases: list[PrepositionalPhrase]
) -> tuple[list[str], list[str]]:
    """Return the pronouns, and everything between subject and pronouns and the verbs at the end.

    Order: adverb, noun phrases (dative first), `nicht`, für-phrase, place, prepositional
    object or direction, adjective. With `nicht` the noun phrases come before the adverb.
    """
    objects = [phrase for phrase in phrases if not phrase.preposition.german]
    # `not` with an indefinite object is kein: does not buy a book, kauft kein Buch. Of two
    # objects it is the accusative, the last one.
    target = objects[-1].object if objects else None
    kein = predicate.negated and isinstance(target, NounPhrase) and not target.definite
    pronouns: list[str] = []
    nouns: list[str] = []
    for phrase in objects:
        nominal, case = phrase.object, phrase.preposition.case
        if isinstance(nominal, Pronoun):
            pronouns.append(nominal.german[case])
        else:
            nouns += _words(
                nominal, case, kein=kein and nominal is target, bare=phrase is phrases[-1]
            )
    adverbs = [adverb.german for adverb in (predicate.time, predicate.frequency) if adverb]
    words = [*nouns, *adverbs, "nicht"] if predicate.negated and not kein else adverbs + nouns
    for phrase in phrases[len(objects) :]:
        words += _prepositional(phrase, bare=phrase is phrases[-1])
    if predicate.adjective is not None:
        words += ["sehr"] * predicate.very + [predicate.adjective.predicative]
    return pronouns, words


def _noun_phrase(phrase: NounPhrase, case: Case, kein: bool, bare: bool) -> list[str]:
    column = _column(phrase.noun, phrase.plural)
    determiner = lexicon.NO if kein else phrase.determiner
    declension = determiner.declension
    if isinstance(phrase.possessor, ProperName):
        words, declension = [phrase.possessor.german + "s"], "strong"
    else:
        if phrase.possessor is not None:
            determiner, declension = lexicon.THE, "weak"
        words = [_determiner_form(determiner, column, case)]
    if phrase.adjectives:
        ending = _ENDINGS[declension][case][column]
        words += [adjective.stem + ending for adjective in phrase.adjectives]
    words.append(phrase.noun.forms[phrase.plural][case])
    if isinstance(phrase.possessor, NounPhrase):
        words += _noun_phrase(phrase.possessor, Case.GENITIVE, False, False)
    match phrase.modifier:
        case PrepositionalPhrase():
            words += _prepositional(phrase.modifier)
        case RelativeClause() if not bare:
            words += _relative(phrase.modifier, phrase)
    return words


def _prepositional(phrase: PrepositionalPhrase, *, bare: bool = False) -> list[str]:
    preposition = phrase.preposition.german
    words = _words(phrase.object, phrase.preposition.case, bare=bare)
    # Only before a definite article, and not before a coordination: zu dem Mann und der Frau.
    if isinstance(phrase.object, NounPhrase):
        contracted = _CONTRACTIONS.get((preposition, words[0]))
        if contracted is not None and not phrase.object.plural:
            return [contracted, *words[1:]]
    return [preposition, *words]


def _column(noun: Noun, plural: bool) -> int:
    """Return the column of an inflection table: the gender in the singular, 3 in the plural."""
    return 3 if plural else noun.gender


@cache
def _determiner_form(determiner: Determiner, column: int, case: Case) -> str:
    """Return the German determiner; an empty string where there is none."""
    ending = _ENDINGS[determiner.endings][case][column] if determiner.endings else ""
    return determiner.stem + ending


def _verb_parts(predicate: Predicate, person: int) -> tuple[str, str, str]:
    """Return (finite verb, separated prefix, non-finite verb); a part that is missing is empty.

    Args:
        predicate: the verb with its tense and modal.
        person: 0 for ich, 1 for er/sie, 2 for plural.
    """
    verb, tense, modal = predicate.verb, predicate.tense, predicate.modal
    if modal is not None:
        return modal.german[tense][person], "", verb.prefix + verb.infinitive
    match tense:
        case Tense.PRESENT:
            return verb.german_present[person], verb.prefix, ""
        case Tense.PAST:
            return verb.german_past[person == 2], verb.prefix, ""
        case Tense.PERFECT:
            auxiliary = _SEIN if verb.with_sein else _HABEN
            return auxiliary[person], "", verb.german_participle
        case Tense.FUTURE:
            return _WERDEN[person], "", verb.prefix + verb.infinitive
