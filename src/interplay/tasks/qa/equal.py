"""Whether an answer is the gold one: numbers by value, words as words, everything else as mathematics by math-verify.

math-verify (sympy behind it) never sees a text that it could hang on: signals do not stop a power of big integers, which is one
call into C. So a text must be tame first: short, of known commands and single-letter variables, with at most one power, whose
exponent is small. Its parser of plain Python expressions, which evaluates, is never used; its LaTeX parser is."""

import re
import threading
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from interplay.tasks import text
from interplay.tasks.qa.number import plain, values

LONGEST = 80
SECONDS = 2
"""After which math-verify gives up on a text, if it is asked in the main thread (it sets an alarm)."""
COMMANDS = {"frac", "dfrac", "tfrac", "sqrt", "pi", "cdot", "times", "pm", "infty", "cup", "left", "right"}
_COMMAND = re.compile(r"\\([A-Za-z]+)")
_POWER = re.compile(r"\^(?:\{-?(?:\d{1,2}|[a-z])\}|\d|[a-z])(?!\d)")
_STRANGE = re.compile(r"[^\w\s+\-*/().,{}\[\]^]|[A-Za-z]{2,}|\d{21,}|\d\s+\d|\*\s*\*")


def equal(said: str, golds: Sequence[str]) -> bool:
    """Whether what was said is one of the answers. Never raises on account of what was said, and never runs it."""
    return bool(said.strip()) and any(_equal(said, gold) for gold in golds)


def _equal(said: str, gold: str) -> bool:
    ours, theirs = values(said), values(gold)
    if ours and theirs:
        return bool(ours & theirs)
    if wordy(gold):
        return text.exact_match(said, [gold])
    if plain(said) == plain(gold):
        return True
    return tame(said) and tame(gold) and not _lists_more(said, gold) and _same(plain(said), plain(gold))


def wordy(gold: str) -> bool:
    """Whether an answer is words: letters, blanks and the punctuation of names, without a digit."""
    return all(c.isalpha() or c in " '’.,-&" for c in gold) and sum(c.isalpha() for c in gold) > 1


def tame(written: str) -> bool:
    """Whether math-verify can be given a text without danger."""
    bare = plain(written)
    commands = _COMMAND.findall(bare)
    bare = _COMMAND.sub(" ", bare)
    powers = _POWER.findall(bare)
    return (
        0 < len(written) <= LONGEST
        and set(commands) <= COMMANDS
        and bare.count("^") == len(powers) <= 1
        and not _STRANGE.search(bare)
    )


def _lists_more(said: str, gold: str) -> bool:
    """Whether what was said names more things than the gold: an answer among others is none."""
    return plain(said).count(",") != plain(gold).count(",")


@lru_cache(maxsize=4096)
def _same(said: str, gold: str) -> bool:
    """math-verify's judgement of two tame texts; no where it cannot read one."""
    from math_verify import verify  # sympy takes a second to load, and most answers are plain numbers

    alarm = SECONDS if threading.current_thread() is threading.main_thread() else None
    ours, theirs = _parsed(said, alarm), _parsed(gold, alarm)
    return bool(ours and theirs) and verify(theirs, ours, timeout_seconds=alarm)


def _parsed(written: str, alarm: int | None) -> list[Any]:
    from math_verify import LatexExtractionConfig, parse

    config = [LatexExtractionConfig(boxed_match_priority=0)]
    return parse(f"\\boxed{{{written}}}", config, fallback_mode="no_fallback", parsing_timeout=alarm)
