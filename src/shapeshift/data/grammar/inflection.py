"""German inflection: determiners, adjective endings, relative pronouns, verb forms."""

from __future__ import annotations

from functools import cache

from shapeshift.data.grammar.tree import (
    Article,
    Case,
    Declension,
    Determiner,
    Noun,
    Predicate,
    Tense,
)

# Columns: masculine, feminine, neuter, plural. Rows: nominative, accusative, dative, genitive.
_Table = tuple[tuple[str, str, str, str], ...]


def _table(text: str) -> _Table:
    rows = (row.split("-")[1:] for row in text.split("/"))
    return tuple(
        (masculine, feminine, neuter, plural) for masculine, feminine, neuter, plural in rows
    )


_DER = _table("-der-die-das-die/-den-die-das-die/-dem-der-dem-den/-des-der-des-der")
_DIESER = _table("-er-e-es-e/-en-e-es-e/-em-er-em-en/-es-er-es-er")
_EIN = _table("--e--e/-en-e--e/-em-er-em-en/-es-er-es-er")
RELATIVE_PRONOUNS = _table(
    "-der-die-das-die/-den-die-das-die/-dem-der-dem-denen/-dessen-deren-dessen-deren"
)
ADJECTIVE_ENDINGS = {
    Declension.WEAK: _table("-e-e-e-en/-en-e-e-en/-en-en-en-en/-en-en-en-en"),
    Declension.MIXED: _table("-er-e-es-en/-en-e-es-en/-en-en-en-en/-en-en-en-en"),
    Declension.STRONG: _table("-er-e-es-e/-en-e-es-e/-em-er-em-en/-en-er-en-er"),
}
_HABEN = ("habe", "hat", "haben")
_SEIN = ("bin", "ist", "sind")
_WERDEN = ("werde", "wird", "werden")


def column(noun: Noun, plural: bool) -> int:
    """Return the column of an inflection table: the gender in the singular, 3 in the plural."""
    return 3 if plural else noun.gender


@cache
def determiner_form(determiner: Determiner, column: int, case: Case) -> str:
    """Return the German determiner; an empty string where there is none."""
    match determiner.article:
        case Article.DER:
            return _DER[case][column]
        case Article.DIESER:
            return determiner.stem + _DIESER[case][column]
        case Article.EIN:
            return determiner.stem + _EIN[case][column]
        case _:
            return determiner.stem


def verb_parts(predicate: Predicate, person: int) -> tuple[str, str, str]:
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
