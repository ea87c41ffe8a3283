"""The verbs of the built-in grammar.

A line of `verbs.tsv`: frame; classes of subjects; classes of objects, or nouns by their English;
English base, past, participle where it differs from the past, and what follows the verb; German
infinitive (`auf|machen`: separable prefix), third person, preterite, participle (`ist gegangen`:
perfect with sein); the preposition that the verb governs (English, German and case); marks. `*`
marks a verb of state, which has no perfect here; `!` one that takes no place; `€` something that
one can do für somebody.
"""

from __future__ import annotations

from shapeshift.data.grammar.lexicon import add_s, nouns, read_table, senses
from shapeshift.data.grammar.tree import Case, Frame, Preposition, Sense, Verb

_IRREGULAR_THIRD = {"go": "goes", "have": "has", "do": "does"}
_IRREGULAR_FIRST = {"wissen": "weiß"}


def _verb(row: dict[str, str]) -> Verb:
    frame, base, past = Frame[row["frame"].upper()], row["english"], row["past"]
    prefix, _, infinitive = row["infinitive"].rpartition("|")
    preterite = row["preterite"]
    auxiliary, _, participle = row["german_participle"].rpartition(" ")
    stative = "*" in row["marks"]
    return Verb(
        base=base,
        third=_IRREGULAR_THIRD.get(base) or add_s(base),
        past=past,
        participle=row["participle"] or past,
        particle=row["particle"],
        infinitive=infinitive,
        german_present=(
            _IRREGULAR_FIRST.get(infinitive, infinitive[:-1]), row["present"], infinitive,
        ),
        german_past=(preterite, preterite + ("n" if preterite.endswith("e") else "en")),
        german_participle=participle,
        prefix=prefix,
        with_sein=auxiliary == "ist",
        frame=frame,
        subjects=senses(row["subjects"]),
        objects=nouns(row["objects"]),
        preposition=_preposition(row["preposition"]),
        stative=stative,
        for_someone="€" in row["marks"],
        has_place=not ("!" in row["marks"] or stative or frame is Frame.DIRECTION),
    )  # fmt: skip


def _preposition(field: str) -> Preposition | None:
    if not field:
        return None
    english, german, case = field.split(":")
    return Preposition(english, german, Case[case.upper()])


BE = Verb(
    base="be", third="is", past="was", participle="been", particle="", infinitive="sein",
    german_present=("bin", "ist", "sind"), german_past=("war", "waren"),
    german_participle="gewesen", prefix="", with_sein=True, frame=Frame.COPULA,
    subjects=frozenset(Sense), objects=(), preposition=None, stative=True, for_someone=False,
    has_place=False,
)  # fmt: skip
VERBS = (*map(_verb, read_table("verbs.tsv")), BE)
SEE = next(verb for verb in VERBS if (verb.base, verb.frame) == ("see", Frame.ACCUSATIVE))
BELONG = next(verb for verb in VERBS if verb.base == "belong")
