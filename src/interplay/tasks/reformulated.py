"""A question of another family in another form: multiple choice, cloze, true or false (Cog-DRIFT, arXiv:2604.04767); text, chance
level and verifier. The inner family judges the steps of a solution; the final answer is read here."""

import json
import re
from dataclasses import replace
from fractions import Fraction
from functools import lru_cache
from typing import Any, NamedTuple

from interplay.tasks.families import judge_family
from interplay.tasks.family import Family, compact_json, from_json
from interplay.tasks.op_dag.terse import ANSWER, CLOSE_BRACKET, EQUALS, OPEN_BRACKET, SECTION
from interplay.tasks.spec import Verify
from interplay.tasks.verdict import BOX, Row, Verdict, extract_answer, normalise

# Equality of answers: as numbers where both are numbers, else as words.


LONGEST = 40
"""Most characters of a number; longer texts count as words."""


def number_of(text: str) -> Fraction | None:
    """The number of a text (`12`, `-3`, `1,200`, `12.0`, `24/2`, `$5`, `50%`), or None."""
    plain = text.strip().lstrip("$").rstrip("%").replace(",", "")
    if len(plain) > LONGEST or not plain.isascii() or "e" in plain.lower() or "_" in plain:
        return None
    try:
        return Fraction(plain)
    except (ValueError, ZeroDivisionError):
        return None


def same_answer(one: str, other: str, modulus: int | None = None) -> bool:
    """Whether two answers are equal; numbers are equal modulo `modulus` where there is one."""
    ours, theirs = number_of(one), number_of(other)
    if ours is not None and theirs is not None:
        return (ours - theirs) % modulus == 0 if modulus else ours == theirs
    if ours is not None or theirs is not None:
        return False
    return one.strip() == other.strip() or (bool(normalise(one)) and normalise(one) == normalise(other))


# The form of a question, with the question's own gold.


CHOICES = {"four_choice": 4, "ten_choice": 10}
"""Formats with options, and how many."""
CLOZE, TRUE_FALSE, OPEN = "cloze", "true_false", "open"
FORMATS = (*CHOICES, CLOZE, TRUE_FALSE, OPEN)
HIDDEN = "_"
"""Replaces a hidden character of the answer in a cloze."""
KEYS = "abcdefghij"
"""Keys of options. Lower-case letters: every alphabet of op_dag with ten letters has them."""


class Form(NamedTuple):
    """One question in one format."""

    format: str
    """One of FORMATS."""
    family: str
    """The inner family."""
    graph: str
    """Its gold, for that family's `loads`."""
    gold: str
    """The right answer to the open question."""
    options: tuple[str, ...] = ()
    """Of a choice, in the order of the prompt; one of them is the gold."""
    mask: str = ""
    """Of a cloze: the answer with HIDDEN in place of some characters."""
    statement: str = ""
    """Of true_false: the proposed answer."""


class Loaded(NamedTuple):
    """A form with the problem inside it."""

    form: Form
    judge: Family[Any]
    """The inner family."""
    inner: Any
    """As its `loads` gives it."""


def dumps(form: Form) -> str:
    """JSON, the same for equal forms."""
    return compact_json(form._asdict())


read_form = from_json(Form)
"""The inverse of `dumps`."""


def loads(text: str) -> Loaded:
    """The form of `dumps`, with the problem inside it."""
    form = read_form(text)
    family = judge_family(form.family)
    return Loaded(form, family, family.loads(form.graph))


# The chance level by format.


FAMILY = "reformulated"


def chance(row: Row) -> float:
    """The chance that a uniform guess among the possible answers is right: 1/4, 1/10, 1/2; of a cloze one over the answers that
    fit the mask; of an open question over residues 1/p, else 0."""
    return _chance_of_form(row.family, row.graph)


@lru_cache(maxsize=1 << 16)
def _chance_of_form(family: str, graph: str) -> float:
    if family == FAMILY:
        return guess_chance(read_form(graph))
    modulus = modulus_of(family, graph)
    return 1 / modulus if modulus else 0.0


def guess_chance(form: Form) -> float:
    """`chance` of a form."""
    if form.format in CHOICES:
        return 1 / CHOICES[form.format]
    if form.format == TRUE_FALSE:
        return 0.5
    return _masked(form) if form.format == CLOZE else _chance_of_form(form.family, form.graph)


def modulus_of(family: str, graph: str) -> int | None:
    """The modulus up to which two numbers are the same answer to a problem; None: none."""
    return json.loads(graph).get("modulus") if family == TERSE else None


def _masked(form: Form) -> float:
    modulus = modulus_of(form.family, form.graph)
    if modulus:
        values = [str(value) for value in range(modulus) if len(str(value)) == len(form.mask)]
        fitting = [one for one in values if all(shown in (HIDDEN, c) for shown, c in zip(form.mask, one, strict=True))]
        return 1 / max(len(fitting), 1)
    ways = 1.0
    for shown, character in zip(form.mask, form.gold, strict=True):
        ways *= (10 if character.isdigit() else 26) if shown == HIDDEN else 1
    return 1 / ways


# Text.
#
# Of op_dag, in the characters of its alphabet: the additions to the question are in brackets before the `|` that ends the prompt,
# and the solution is that of the open question. Of `..?c|` with the answer 12:
#
#     four_choice  ..?c(a)3(b)12(c)11(d)13|  ..#12  (`#b` and `#(b)12` are right, too)
#     cloze        ..?c(1_)|                 ..#12
#     true_false   ..?c(=13)|                ..#-   (`+` for a true statement, `-` for a false one)
#
# Of other families as text, before the last line where that ends in a colon (the model continues it).


TERSE = "op_dag"


def truth_words(family: str) -> tuple[str, str]:
    """The right answers to a true and to a false statement."""
    return ("+", "-") if family == TERSE else ("true", "false")


def render(row: Row, form: Form) -> tuple[str, str, str]:
    """Prompt, solution and answer of a row in this form; the answer stays the gold value, except for true_false."""
    terse = form.family == TERSE
    prompt = row.prompt.removesuffix(SECTION) + _given(form) + SECTION if terse else _text(row.prompt, form)
    if form.format != TRUE_FALSE:
        return prompt, row.solution, row.answer
    said = truth_words(form.family)[form.statement != form.gold]
    return prompt, _replaced_last(row.solution, form.gold, said), said


def open_row(row: Row, form: Form) -> Row:
    """The row of the open question of `form`, as far as its question goes: family, gold, and the prompt without the form's
    additions."""
    lines = _lines(form)
    added = _given(form) if form.family == TERSE else "\n".join(lines) + "\n" if lines else ""
    head, _, rest = row.prompt.rpartition(added) if added else ("", "", row.prompt)
    return replace(row, family=form.family, graph=form.graph, answer=form.gold, prompt=head + rest)


def _given(form: Form) -> str:
    if form.format in CHOICES:
        return "".join(f"{OPEN_BRACKET}{key}{CLOSE_BRACKET}{option}" for key, option in zip(KEYS, form.options, strict=False))
    if form.format == CLOZE:
        return f"{OPEN_BRACKET}{form.mask}{CLOSE_BRACKET}"
    return f"{OPEN_BRACKET}{EQUALS}{form.statement}{CLOSE_BRACKET}" if form.format == TRUE_FALSE else ""


def _text(prompt: str, form: Form) -> str:
    """The prompt with the form's additions, each on its own line."""
    if not (lines := _lines(form)):
        return prompt
    head, newline, last = prompt.rpartition("\n")
    if last.endswith(":"):
        return "\n".join([*([head] if newline else []), *lines, last])
    return prompt + ("" if prompt.endswith("\n") else "\n") + "\n".join(lines) + "\n"


def _lines(form: Form) -> list[str]:
    if form.format in CHOICES:
        options = [f"({key}) {option}" for key, option in zip(KEYS, form.options, strict=False)]
        return ["Options:", *options, "Answer with one of them."]
    if form.format == CLOZE:
        return [f"The answer looks like this, with {HIDDEN} for each hidden character: {form.mask}"]
    if form.format == TRUE_FALSE:
        return [f"Proposed answer: {form.statement}", "Is it right? Answer true or false."]
    return []


def _replaced_last(text: str, old: str, new: str) -> str:
    """The text with `new` for the last `old`, the answer of a solution."""
    before, found, after = text.rpartition(old)
    return before + new + after if found else f"{text}{ANSWER}{new}"


# The verifier: the final answer is translated from the format to the gold's terms, then the inner family judges the completion.
#
# A choice is answered by the value of an option, by its key, or by both if they agree. A list of keys or of options, a key with
# another option's value, and an empty answer are no choice and never right.


NO_CHOICE = ""
"""Replaces an answer that is no choice; no family accepts it."""
_KEY = re.compile(r"\(?([a-j])\)?[.:]?", re.IGNORECASE)
_BOTH = re.compile(r"(?:\(([a-j])\)|([a-j])[).:])\s*(.+)", re.IGNORECASE | re.DOTALL)
_TERSE_KEY = re.compile(r"\(([a-j])\)|([a-j])")
_TERSE_BOTH = re.compile(r"(?:\(([a-j])\)|([a-j]))(.+)")
_TRUTH = {"true": True, "yes": True, "false": False, "no": False}


def verify(loaded: Loaded, completion: str, options: Verify) -> Verdict:
    """Strict: the inner family finds every step right, and the answer is. Score and error are the inner family's."""
    form = loaded.form
    stated = stated_answer(form, completion)
    if stated is None:
        found = loaded.judge.verify(loaded.inner, completion, options)
        closed = form.format in CHOICES or form.format == TRUE_FALSE  # a number in the steps is no choice
        return found._replace(strict=False, answer=False, error="truncated") if closed else found
    meant = stated
    if form.format == TRUE_FALSE:
        meant = _judged_statement(form, stated)
    elif form.format in CHOICES:
        meant = chosen_option(form, stated)
    verdict = loaded.judge.verify(loaded.inner, replace_answer(form, completion, meant), options)
    return verdict._replace(said=stated)


def is_right(loaded: Loaded, value: str) -> bool:
    """Whether the inner family accepts `value` as the answer to the open question."""
    text = ANSWER + value if loaded.form.family == TERSE else f"{BOX}{value}}}"
    return loaded.judge.verify(loaded.inner, text, Verify()).answer


def stated_answer(form: Form, completion: str) -> str | None:
    """The answer as the inner family would read it; None where there is none."""
    if form.family != TERSE:
        return extract_answer(completion)
    _, mark, said = completion.partition(ANSWER)
    return said.strip() if mark else None


def replace_answer(form: Form, completion: str, said: str) -> str:
    """The completion with another answer."""
    if form.family == TERSE:
        return completion.partition(ANSWER)[0] + ANSWER + said
    boxed = BOX in completion
    head = completion.rpartition(BOX if boxed else ANSWER)[0]
    return f"{head}{BOX}{said}}}" if boxed else f"{head}{ANSWER}{said}"


def chosen_option(form: Form, said: str) -> str:
    """The value that an answer to a choice refers to. An answer that is no option and mentions no wrong one is passed to the
    inner family, which may have another name for the right one."""
    terse = form.family == TERSE
    exact = [option for option in form.options if (said == option if terse else said.casefold() == option.casefold())]
    if exact:
        return exact[0]
    by_key = dict(zip(KEYS, form.options, strict=False))
    if key := (_TERSE_KEY if terse else _KEY).fullmatch(said):
        return by_key.get(_key(key), NO_CHOICE)
    if both := (_TERSE_BOTH if terse else _BOTH).fullmatch(said):
        option, value = by_key.get(_key(both)), both.groups()[-1]
        return option if option is not None and (value == option if terse else same_answer(value, option)) else NO_CHOICE
    same = [option for option in form.options if not terse and same_answer(said, option)]
    if same:
        return same[0]
    words = f" {normalise(said)} "
    wrong = [option for option in form.options if option != form.gold]
    return NO_CHOICE if any(not normalise(option) or f" {normalise(option)} " in words for option in wrong) else said


def _key(match: re.Match[str]) -> str:
    return next(group for group in match.groups() if group).lower()


def _judged_statement(form: Form, said: str) -> str:
    """The gold where the answer about the statement is right."""
    holds = form.statement == form.gold
    if form.family == TERSE:
        return form.gold if said == truth_words(form.family)[not holds] else NO_CHOICE
    return form.gold if _TRUTH.get(normalise(said)) is holds else NO_CHOICE


REFORMULATED = Family(
    name=FAMILY, errors=(), loads=loads, verify=verify, open_question=lambda row: open_row(row, read_form(row.graph))
)
"""Its error classes are those of the inner family, and `truncated`."""
