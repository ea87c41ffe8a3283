"""Random clauses and sentences of an exact number of English words.

Every function gets the number of words that its part of the English sentence is to have, spends
some on what it must have, and hands the rest down. Nothing is ever cut off or thrown away.

What a modifier belongs to is never open, or the German would depend on the reading: a clause, an
adverb or `and` always joins the nearest phrase that could take it. So what has a relative clause
at its right edge is followed by nothing that could still belong to that relative clause
(`closed` below), and no because-clause stands inside a relative clause.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from enum import Enum, auto

from shapeshift.data import grammar_lexicon as lexicon
from shapeshift.data import grammar_nominals as nominals
from shapeshift.data.grammar_english import verb_group_length
from shapeshift.data.grammar_nominals import Nominals
from shapeshift.data.grammar_tree import (
    Adverb,
    Clause,
    Conjunction,
    Coordination,
    Frame,
    Front,
    Modal,
    Nominal,
    Noun,
    NounPhrase,
    Predicate,
    PrepositionalPhrase,
    RelativeClause,
    Role,
    Sense,
    Sentence,
    Subordinate,
    Tense,
    Verb,
    is_definite,
    person_index,
)
from shapeshift.data.grammar_verbs import BE, BELONG, SEE, VERBS, verbs_for
