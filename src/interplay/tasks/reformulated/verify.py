"""Judges a completion: what it says in the end is read as the format asks, then the inner family judges all of it.

A choice is answered by the value of an option, by its key, or by both where they agree. A list of keys or of options, a key with
another option's value, and an empty answer are no choice and never right, whatever stands among them."""

import re

from interplay.schema.verify import Verify
from interplay.tasks.answer import BOX, extract
from interplay.tasks.op_dag.render import ANSWER
from interplay.tasks.reformulated.equal import same
from interplay.tasks.reformulated.form import CHOICES, KEYS, TRUE_FALSE, Form, Loaded
from interplay.tasks.reformulated.surface import TERSE, says
from interplay.tasks.text import normalise
from interplay.tasks.verdict import Verdict

NOTHING = ""
"""Put for an answer that is none: no family takes it for right."""
_KEY = re.compile(r"\(?([a-j])\)?[.:]?", re.IGNORECASE)
_BOTH = re.compile(r"(?:\(([a-j])\)|([a-j])[).:])\s*(.+)", re.IGNORECASE | re.DOTALL)
_TERSE_KEY = re.compile(r"\(([a-j])\)|([a-j])")
_TERSE_BOTH = re.compile(r"(?:\(([a-j])\)|([a-j]))(.+)")
_TRUTH = {"true": True, "yes": True, "false": False, "no": False}


def verify(loaded: Loaded, completion: str, options: Verify) -> Verdict:
    """Strict: the inner family finds every step right, and the answer is. Score and error are the inner family's."""
    form = loaded.form
    said = spoken(form, completion)
    if said is None:
        found = loaded.judge.verify(loaded.inner, completion, options)
        closed = form.format in CHOICES or form.format == TRUE_FALSE  # no number in passing is the choice of an option
        return found._replace(strict=False, answer=False, error="truncated") if closed else found
    meant = _judged(form, said) if form.format == TRUE_FALSE else chosen(form, said) if form.format in CHOICES else said
    verdict = loaded.judge.verify(loaded.inner, respoken(form, completion, meant), options)
    return verdict._replace(said=said)


def right(loaded: Loaded, value: str) -> bool:
    """Whether the inner family takes `value` for the answer to the open question."""
    text = ANSWER + value if loaded.form.family == TERSE else f"{BOX}{value}}}"
    return loaded.judge.verify(loaded.inner, text, Verify()).answer


def spoken(form: Form, completion: str) -> str | None:
    """The answer as the inner family would read it; None where there is none."""
    if form.family != TERSE:
        return extract(completion)
    _, mark, said = completion.partition(ANSWER)
    return said.strip() if mark else None


def respoken(form: Form, completion: str, said: str) -> str:
    """The completion with another answer."""
    if form.family == TERSE:
        return completion.partition(ANSWER)[0] + ANSWER + said
    boxed = BOX in completion
    head = completion.rpartition(BOX if boxed else ANSWER)[0]
    return f"{head}{BOX}{said}}}" if boxed else f"{head}{ANSWER}{said}"


def chosen(form: Form, said: str) -> str:
    """The value that an answer to a choice means. What is no option, nor mentions a wrong one, is left to the inner family, which
    may know another name for the right one."""
    terse = form.family == TERSE
    exact = [option for option in form.options if (said == option if terse else said.casefold() == option.casefold())]
    if exact:
        return exact[0]
    by_key = dict(zip(KEYS, form.options, strict=False))
    if key := (_TERSE_KEY if terse else _KEY).fullmatch(said):
        return by_key.get(_key(key), NOTHING)
    if both := (_TERSE_BOTH if terse else _BOTH).fullmatch(said):
        option, value = by_key.get(_key(both)), both.groups()[-1]
        return option if option is not None and (value == option if terse else same(value, option)) else NOTHING
    alike = [option for option in form.options if not terse and same(said, option)]
    if alike:
        return alike[0]
    words = f" {normalise(said)} "
    wrong = [option for option in form.options if option != form.gold]
    return NOTHING if any(not normalise(option) or f" {normalise(option)} " in words for option in wrong) else said


def _key(match: re.Match[str]) -> str:
    return next(group for group in match.groups() if group).lower()


def _judged(form: Form, said: str) -> str:
    """The gold where the answer says about the statement what is so."""
    holds = form.statement == form.gold
    if form.family == TERSE:
        return form.gold if said == says(form.family)[not holds] else NOTHING
    return form.gold if _TRUTH.get(normalise(said)) is holds else NOTHING
