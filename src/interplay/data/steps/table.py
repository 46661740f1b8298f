"""The table of curation steps, by the `name` of their spec."""

from collections.abc import Callable
from typing import Any

from interplay.data.steps.chain import citation, keychain, long_context, needle
from interplay.data.steps.chat import chat_template
from interplay.data.steps.compare import contamination, deduplicate
from interplay.data.steps.conflict import conflict_pairs
from interplay.data.steps.decompose import atoms, intervention, parts
from interplay.data.steps.label import label
from interplay.data.steps.measured import difficulty, pass_rate, preference_pairs, rejection_sampling
from interplay.data.steps.own import own
from interplay.data.steps.poison import poison
from interplay.data.steps.rate import rated_pairs
from interplay.data.steps.reformulate import choice, cloze, ladder, true_false
from interplay.data.steps.sift import length, take
from interplay.data.steps.step import Inputs, Made
from interplay.data.steps.units import units
from interplay.tasks.row import Row

STEPS: dict[str, Callable[[Any, list[Row], Inputs], Made]] = {
    "take": take,
    "pass_rate": pass_rate,
    "length": length,
    "deduplicate": deduplicate,
    "contamination": contamination,
    "label": label,
    "difficulty": difficulty,
    "poison": poison,
    "custom": own,
    "keychain": keychain,
    "needle": needle,
    "long_context": long_context,
    "citation": citation,
    "chat_template": chat_template,
    "choice": choice,
    "cloze": cloze,
    "true_false": true_false,
    "ladder": ladder,
    "subproblems": parts,
    "intervention": intervention,
    "rejection_sampling": rejection_sampling,
    "preference_pairs": preference_pairs,
    "rated_pairs": rated_pairs,
    "conflict_pairs": conflict_pairs,
    "atoms": atoms,
    "units": units,
}
