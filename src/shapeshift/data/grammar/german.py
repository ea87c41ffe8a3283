"""The German side of a derivation: word order, case, commas.

A clause is laid out in fields: front, finite verb, middle field, verbs at the end, and what
follows them: the relative clause of the last phrase in the middle field (er hat den Hund gesehen,
der schläft) and subordinate clauses. A comma is a word of its own until the end; where two meet,
or one meets the full stop, one of them goes.
"""

from __future__ import annotations

from functools import cache

from shapeshift.data.grammar import lexicon
from shapeshift.data.grammar.tree import (
    Case,
    Clause,
    Coordination,
    Determiner,
    Front,
    Nominal,
    Noun,
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
    person_index,
)

_COMMA = ","
_HABEN = ("habe", "hat", "haben")
_SEIN = ("bin", "ist", "sind")
_WERDEN = ("werde", "wird", "werden")
_CASES = {  # of relative pronouns, except behind a preposition
    Role.SUBJECT: Case.NOMINATIVE,
    Role.ACCUSATIVE: Case.ACCUSATIVE,
    Role.DATIVE: Case.DATIVE,
    Role.POSSESSOR: Case.GENITIVE,
}
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
    words: list[str] = []
    for number, clause in enumerate(sentence.clauses):
        if number:
            words += [_COMMA, sentence.conjunctions[number - 1].german]
        words += _main(clause)
    text = _join(words)
    return text[0].upper() + text[1:] + "."


def _join(words: list[str]) -> str:
    """Return words and commas as text; empty words are left out."""
    pieces: list[str] = []
    comma = False
    for word in words:
        if word == _COMMA:
            comma = True
        elif word:
            if pieces:
                pieces.append(", " if comma else " ")
            pieces.append(word)
            comma = False
    return "".join(pieces)


def _main(clause: Clause) -> list[str]:
    """Verb second: one phrase, the finite verb, the rest."""
    assert clause.subject is not None
    first = clause.predicates[0]
    person = person_index(clause.subject, None)
    subject = _nominal(clause.subject, Case.NOMINATIVE)
    match clause.front:
        case Front.TIME if first.time is not None:
            front = [first.time.german]
        case Front.PLACE if first.place is not None:
            front = _prepositional(first.place)
        case Front.ADVERBIAL if clause.adverbial is not None:
            front = _subordinate(clause.adverbial)[1:]  # no comma between und and weil
        case _:
            front, subject = subject, []
    words: list[str] = []
    for number, predicate in enumerate(clause.predicates):
        finite, prefix, nonfinite = _verb_parts(predicate, person)
        opening, start, opened_by = ["und"], _pronouns(predicate), Front.SUBJECT
        if number == 0:
            opening, opened_by = front, clause.front
            # Gestern rief uns der Arzt an: a pronoun comes before a subject that is none.
            is_pronoun = isinstance(clause.subject, Pronoun)
            start = [*subject, *start] if is_pronoun else [*start, *subject]
        words += [*opening, finite, *start, *_middle(predicate, opened_by), prefix, nonfinite]
        words += _after(predicate, opened_by)
    if clause.adverbial is not None and clause.front is not Front.ADVERBIAL:
        words += _subordinate(clause.adverbial)
    return words


def _verb_final(clause: Clause, antecedent: NounPhrase | None) -> list[str]:
    """Verb last: everything after the conjunction or the relative pronoun."""
    person = person_index(clause.subject, antecedent)
    words = [] if clause.subject is None else _nominal(clause.subject, Case.NOMINATIVE)
    for number, predicate in enumerate(clause.predicates):
        if number:
            words.append("und")
        finite, prefix, nonfinite = _verb_parts(predicate, person)
        words += [*_pronouns(predicate), *_middle(predicate), nonfinite]
        words += [prefix + finite, *_after(predicate)]
    if clause.adverbial is not None:
        words += _subordinate(clause.adverbial)
    return words


def _subordinate(subordinate: Subordinate) -> list[str]:
    conjunction = subordinate.conjunction
    words = [_COMMA]
    for number, clause in enumerate(subordinate.clauses):
        if number:
            words.append("und")
        past = clause.predicates[0].tense is Tense.PAST
        words.append(conjunction.german_past if past else conjunction.german)
        words += _verb_final(clause, None)
    return [*words, _COMMA]


def _relative(relative: RelativeClause, antecedent: NounPhrase) -> list[str]:
    preposition, case = [], _CASES.get(relative.role)
    if case is None:
        governed = relative.clause.predicates[0].verb.preposition
        assert governed is not None
        preposition, case = [governed.german], governed.case
    pronoun = _ENDINGS["relative"][case][_column(antecedent.noun, antecedent.plural)]
    return [_COMMA, *preposition, pronoun, *_verb_final(relative.clause, antecedent), _COMMA]


def _after(predicate: Predicate, front: Front = Front.SUBJECT) -> list[str]:
    if predicate.complement is not None:
        return _subordinate(predicate.complement)
    phrase = _last_phrase(predicate, front)
    if phrase is not None and isinstance(phrase.modifier, RelativeClause):
        return _relative(phrase.modifier, phrase)
    return []


def _last_phrase(predicate: Predicate, front: Front) -> NounPhrase | None:
    """Return the noun phrase at the end of the middle field: its relative clause follows the
    verbs."""
    place = None if front is Front.PLACE else predicate.place
    last: Nominal | None
    for prepositional in (predicate.oblique, place, predicate.beneficiary):
        if prepositional is not None:
            last = prepositional.object
            break
    else:
        last = predicate.dative if predicate.accusative is None else predicate.accusative
    return last if isinstance(last, NounPhrase) else None


def _objects(predicate: Predicate) -> list[tuple[Nominal, Case]]:
    pairs = ((predicate.dative, Case.DATIVE), (predicate.accusative, Case.ACCUSATIVE))
    return [(nominal, case) for nominal, case in pairs if nominal is not None]


def _pronouns(predicate: Predicate) -> list[str]:
    return [
        nominal.german[case]
        for nominal, case in _objects(predicate)
        if isinstance(nominal, Pronoun)
    ]


def _middle(predicate: Predicate, front: Front = Front.SUBJECT) -> list[str]:
    """Everything between subject and pronouns and the verbs at the end.

    Order: adverb, noun phrases (dative first), `nicht`, für-phrase, place, prepositional
    object or direction, adjective. With `nicht` the noun phrases come before the adverb.
    """
    last = _last_phrase(predicate, front)
    kein = predicate.negated and _negated_by_kein(predicate)
    nicht = predicate.negated and not kein
    phrases: list[str] = []
    for nominal, case in _objects(predicate):
        if not isinstance(nominal, Pronoun):
            # Of two objects it is the accusative that takes kein.
            target = case is Case.ACCUSATIVE or predicate.accusative is None
            phrases += _nominal(nominal, case, kein=kein and target, bare=nominal is last)
    adverbs: list[str] = []
    if predicate.time is not None and front is not Front.TIME:
        adverbs.append(predicate.time.german)
    if predicate.frequency is not None:
        adverbs.append(predicate.frequency.german)
    words = [*phrases, *adverbs, "nicht"] if nicht else adverbs + phrases
    if predicate.beneficiary is not None:
        words += _prepositional(predicate.beneficiary, last)
    if predicate.place is not None and front is not Front.PLACE:
        words += _prepositional(predicate.place, last)
    if predicate.oblique is not None:
        words += _prepositional(predicate.oblique, last)
    if predicate.adjective is not None:
        words += ["sehr"] * predicate.very + [predicate.adjective.predicative]
    return words


def _negated_by_kein(predicate: Predicate) -> bool:
    """`not` with an indefinite object is kein: does not buy a book, kauft kein Buch."""
    target = predicate.dative if predicate.accusative is None else predicate.accusative
    return isinstance(target, NounPhrase) and not target.definite


def _nominal(nominal: Nominal, case: Case, *, kein: bool = False, bare: bool = False) -> list[str]:
    """Return the phrase; `kein` replaces its determiner, `bare` leaves out its relative clause."""
    match nominal:
        case NounPhrase():
            return _noun_phrase(nominal, case, kein, bare)
        case Pronoun():
            return [nominal.german[case]]
        case ProperName():
            return [nominal.german]
        case Coordination():
            *initial, last = nominal.items
            words = _nominal(initial[0], case)
            for item in initial[1:]:
                words += [_COMMA, *_nominal(item, case)]
            return [*words, "und", *_nominal(last, case)]


def _noun_phrase(phrase: NounPhrase, case: Case, kein: bool, bare: bool) -> list[str]:
    place = _column(phrase.noun, phrase.plural)
    determiner = lexicon.NO if kein else phrase.determiner
    words: list[str] = []
    declension = determiner.declension
    if isinstance(phrase.possessor, ProperName):
        words = [phrase.possessor.german + "s"]
        declension = "strong"
    else:
        if phrase.possessor is not None:
            determiner, declension = lexicon.THE, "weak"
        if form := _determiner_form(determiner, place, case):
            words = [form]
    if phrase.adjectives:
        ending = _ENDINGS[declension][case][place]
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


def _prepositional(phrase: PrepositionalPhrase, bare: NounPhrase | None = None) -> list[str]:
    preposition = phrase.preposition.german
    words = _nominal(phrase.object, phrase.preposition.case, bare=phrase.object is bare)
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
