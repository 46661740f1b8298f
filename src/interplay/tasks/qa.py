"""Questions with a short answer, mostly a number (GSM8K, arXiv:2110.14168, and similar sets): problem, answer comparison,
verifier."""

import json
import re
import threading
from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache
from typing import Any, NamedTuple

from interplay.tasks import verdict
from interplay.tasks.spec import Verify
from interplay.tasks.verdict import BOX, MARK, Verdict, extract_answer, is_answer_dump

# Questions with a short answer, mostly a number (GSM8K, arXiv:2110.14168, and its like): the worked solution is free text, the
# final answer stands in a box and is checked with math-verify.


__all__ = ["Problem", "dumps", "loads", "render", "verify"]


# Numbers as people write them in answers: with commas, units, currency signs and signs, as fractions and percentages.


LONGEST_NUMBER = 60
"""Characters of a text that is looked at as a number."""
SCALES = {"hundred", "thousand", "million", "billion", "trillion", "dozen", "half", "third", "quarter", "pi", "sqrt"}
"""Words that change a number's value, and so are no units."""
_DIGITS = r"(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?|\.\d+"
NUMBER = re.compile(rf"(?<![\w.])-?[$€£]?(?:{_DIGITS})(?:/[1-9]\d*(?![\d.]))?(?!\w)")
"""A number inside running text. A dash right after a word or number is no sign."""
_ANSWER = re.compile(
    rf"""(?:[A-Za-z]\w{{0,9}}\s*=\s*)?            # x =
    (?P<sign>[-+]?)\s*[$€£]?\s*(?:
      (?:(?P<whole>\d+)\s)?(?P<over>\d+)/(?P<under>\d+)
      |(?P<number>{_DIGITS})
    )\s*(?P<unit>%|[A-Za-z°]{{1,20}}(?:[ /-][A-Za-z]{{1,20}}){{0,3}})?""",
    re.VERBOSE,
)
_FRACTION = re.compile(r"\\[dt]?frac\{(-?\d+)\}\{(-?\d+)\}")
_WRAPPED = re.compile(r"\\(?:text|mathrm|textbf|mathbf)\{([^{}]*)\}")
_NOTHING = re.compile(r"\\[,!;:()\[\]]|\\left|\\right|\$(?=\s*$)|^\$(?=.*\$$)")


def strip_latex(text: str) -> str:
    """The text without LaTeX's dress: `\\text{}`, thin spaces, dollar signs around it, escaped signs, a stop at its end."""
    text = _NOTHING.sub("", _WRAPPED.sub(r" \1", text.strip()))
    text = (
        text.replace("{,}", ",")
        .replace("\\%", "%")
        .replace("\\$", "$")
        .replace("\u2212", "-")
        .replace("^\\circ", "°")
        .replace("$-", "-$")
    )
    return " ".join(text.removesuffix(".").split())


def number_values(text: str) -> set[Fraction]:
    """What a text that is one number and nothing else may mean: one value, for a percentage two (50% is 50 and 1/2); none for any
    other text. A unit is not looked at, but a word that scales, such as million, makes it no plain number."""
    if len(text) > LONGEST_NUMBER:
        return set()
    flat = strip_latex(_FRACTION.sub(r" \1/\2", text))
    found = _ANSWER.fullmatch(flat.replace("- ", "-").replace("/-", "/"))
    if not found or flat.count("/-"):
        return set()
    unit = (found["unit"] or "").lower()
    words = set(re.split(r"[ /-]", unit))
    if words & (SCALES | {word + "s" for word in SCALES}) or (len(unit) == 1 and unit not in "%mglsh°"):
        return set()
    if found["under"]:
        if not int(found["under"]):
            return set()
        value = Fraction(int(found["over"]), int(found["under"])) + int(found["whole"] or 0)
    else:
        value = Fraction(found["number"].replace(",", ""))
    value = -value if found["sign"] == "-" else value
    return {value, value / 100} if unit.startswith(("%", "percent")) else {value}


def last_number(text: str) -> str:
    """The last number that a text mentions, as written; empty where it mentions none."""
    found = NUMBER.findall(text)
    return found[-1] if found else ""


# Whether an answer is the gold one: numbers by value, words as words, everything else as mathematics by math-verify.
#
# math-verify (sympy behind it) never sees a text that it could hang on: signals do not stop a power of big integers, which is
# one call into C. So a text must be tame first: short, of known commands and single-letter variables, with at most one power,
# whose exponent is small. Its parser of plain Python expressions, which evaluates, is never used; its LaTeX parser is.


LONGEST_ANSWER = 80
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
    ours, theirs = number_values(said), number_values(gold)
    if ours and theirs:
        return bool(ours & theirs)
    if wordy(gold):
        return verdict.exact_match(said, [gold])
    if strip_latex(said) == strip_latex(gold):
        return True
    return tame(said) and tame(gold) and not _lists_more(said, gold) and _same(strip_latex(said), strip_latex(gold))


def wordy(gold: str) -> bool:
    """Whether an answer is words: letters, blanks and the punctuation of names, without a digit."""
    return all(c.isalpha() or c in " '’.,-&" for c in gold) and sum(c.isalpha() for c in gold) > 1


def tame(written: str) -> bool:
    """Whether math-verify can be given a text without danger."""
    bare = strip_latex(written)
    commands = _COMMAND.findall(bare)
    bare = _COMMAND.sub(" ", bare)
    powers = _POWER.findall(bare)
    return (
        0 < len(written) <= LONGEST_ANSWER
        and set(commands) <= COMMANDS
        and bare.count("^") == len(powers) <= 1
        and not _STRANGE.search(bare)
    )


def _lists_more(said: str, gold: str) -> bool:
    """Whether what was said names more things than the gold: an answer among others is none."""
    return strip_latex(said).count(",") != strip_latex(gold).count(",")


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


# A question, its answer and the worked solution.


INSTRUCTION = "Reason step by step, and put the final answer in \\boxed{}."


class Problem(NamedTuple):
    """One question."""

    question: str
    answers: tuple[str, ...]
    """Acceptable answers, the canonical one first."""
    steps: tuple[str, ...] = ()
    """Lines of the worked solution; empty where the source has none."""
    id: str = ""
    """The source's own name for it."""


class Rendered(NamedTuple):
    """What the model reads and what it should write. The prompt ends where the solution begins."""

    prompt: str
    solution: str
    answer: str


def render(problem: Problem) -> Rendered:
    """The question and an instruction; the worked solution and the answer in a box."""
    solution = "\n".join([*problem.steps, f"The answer is {BOX}{problem.answers[0]}}}."])
    return Rendered(f"{problem.question}\n{INSTRUCTION}\n", solution, problem.answers[0])


def dumps(problem: Problem) -> str:
    """JSON, the same for equal problems."""
    return json.dumps(problem._asdict(), separators=(",", ":"))


def loads(text: str) -> Problem:
    """The problem of `dumps`."""
    data = json.loads(text)
    return Problem(data["question"], tuple(data["answers"]), tuple(data["steps"]), data["id"])


# Judges a completion by its final answer.
#
# strict: the last `\boxed{}` holds the answer and nothing else. answer: that, or, where there is no box, the last number is
# right, as most scorers of GSM8K have it. An answer given again and again counts for nothing.


REPEATS = 5
"""Equal numbers in a row at the end of a completion without a box that make it a dump."""


def verify(problem: Problem, completion: str, options: Verify) -> Verdict:
    """Judge any text. Never raises on account of the text. Errors: truncated (no answer), dumped, answer (a wrong one), unboxed
    (right, but in no box)."""
    boxed = extract_answer(completion) if BOX in completion else None
    said = boxed if boxed is not None else unboxed(completion, problem.answers[0])
    spread = is_answer_dump(completion) or (boxed is None and repeats(completion))
    right = not spread and equal(said, problem.answers)
    error = (
        "truncated" if not said and boxed is None
        else "dumped" if spread
        else "answer" if not right
        else "unboxed" if boxed is None
        else "none"
    )  # fmt: skip
    return Verdict(error == "none", right, float(right), error, said=said)


def unboxed(completion: str, gold: str) -> str:
    """The answer of a completion without a box: for words what follows the last `#`, else the last number, after that mark where
    it stands; empty where there is none."""
    tail = completion.rpartition(MARK)[2].strip()
    if wordy(gold):
        return tail.split("\n")[0] if MARK in completion else ""
    line = tail.split("\n")[0] if MARK in completion else ""
    return line if number_values(line) else last_number(completion)


def repeats(completion: str) -> bool:
    """Whether a completion ends in the same number over and over."""
    found = NUMBER.findall(completion)[-REPEATS:]
    return len(found) == REPEATS and len(set(found)) == 1
