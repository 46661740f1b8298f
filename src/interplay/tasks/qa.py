"""Questions with a short answer: of files, mostly a number (GSM8K, arXiv:2110.14168, and similar sets), whose worked solution is
free text and whose final answer is in a box and is compared with math-verify; and those for the words that occur most often."""

import re
import threading
from collections import Counter
from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache
from string import ascii_lowercase
from typing import Any, NamedTuple

from interplay.core.random import draw_shuffled, stream
from interplay.tasks import family, spec, verdict
from interplay.tasks.skills import Asked, drawn_distinct, render_asked, structure_of

# Numbers in answers: with commas, units, currency signs and signs, as fractions and percentages.


LONGEST_NUMBER = 60
"""Most characters of a text that is parsed as a number."""
SCALES = {"hundred", "thousand", "million", "billion", "trillion", "dozen", "half", "third", "quarter", "pi", "sqrt"}
"""Words that change a number's value, which are therefore no units."""
_DIGITS = r"(?:[0-9]{1,3}(?:,[0-9]{3})+|[0-9]+)(?:\.[0-9]+)?|\.[0-9]+"
NUMBER = re.compile(rf"(?<![\w.])-?[$€£]?(?:{_DIGITS})(?:/[1-9][0-9]*(?![\d.]))?(?!\w)")
"""A number inside running text. A dash directly after a word or number is no sign."""
_ANSWER = re.compile(
    rf"""(?:[A-Za-z]\w{{0,9}}\s*=\s*)?            # x =
    (?P<sign>[-+]?)\s*[$€£]?\s*(?:
      (?:(?P<whole>[0-9]+)\s)?(?P<over>[0-9]+)/(?P<under>[0-9]+)
      |(?P<number>{_DIGITS})
    )\s*(?P<unit>%|[A-Za-z°]{{1,20}}(?:[ /-][A-Za-z]{{1,20}}){{0,3}})?""",
    re.VERBOSE,
)
_FRACTION = re.compile(r"\\[dt]?frac\{(-?[0-9]+)\}\{(-?[0-9]+)\}")
_WRAPPED = re.compile(r"\\(?:text|mathrm|textbf|mathbf)\{([^{}]*)\}")
_NOTHING = re.compile(r"\\[,!;:()\[\]]|\\left|\\right|\$(?=\s*$)|^\$(?=.*\$$)")


def strip_latex(text: str) -> str:
    """The text without LaTeX markup: `\\text{}`, thin spaces, enclosing dollar signs, escaped signs, and without a final stop."""
    text = _NOTHING.sub("", _WRAPPED.sub(r" \1", text.strip()))
    for old, new in (("{,}", ","), ("\\%", "%"), ("\\$", "$"), ("\u2212", "-"), ("^\\circ", "°"), ("$-", "-$")):
        text = text.replace(old, new)
    return " ".join(text.removesuffix(".").split())


def number_values(text: str) -> set[Fraction]:
    """The values of a text that is one number and nothing else: one value, for a percentage two (50% is 50 and 1/2); none for any
    other text. Units are ignored; a text with a scaling word, such as million, is no plain number."""
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


# Comparison with the gold answer: numbers by value, words as words, everything else as mathematics by math-verify.
#
# math-verify uses sympy, which may not terminate: signals do not interrupt a power of large integers, which is one call into C.
# So only safe texts reach it: short, with known commands and single-letter variables, and at most one power, with a small
# exponent. Of its parsers only the one for LaTeX is used, never the one for Python expressions, which evaluates them.


LONGEST_ANSWER = 80
SECONDS = 2
"""Time limit of math-verify for a text, in the main thread only (it sets an alarm)."""
TO_LOAD = 120
"""Time limit of what it loads before the first one."""
COMMANDS = {"frac", "dfrac", "tfrac", "sqrt", "pi", "cdot", "times", "pm", "infty", "cup", "left", "right"}
_COMMAND = re.compile(r"\\([A-Za-z]+)")
_POWER = re.compile(r"\^(?:\{-?(?:\d{1,2}|[a-z])\}|\d|[a-z])(?!\d)")
_UNWORKED = re.compile(r"[0-9})] *(?:[-+*/(]|\\(?:cdot|times)(?! *10\^)) *[-({\\]*[0-9]")
"""An operation between two numbers; powers of ten stay."""
_STRANGE = re.compile(r"[^\w\s+\-*/().,{}\[\]^]|[A-Za-z]{2,}|\d{21,}|\d\s+\d|\*\s*\*")


def equal(said: str, golds: Sequence[str]) -> bool:
    """Whether an answer is one of the gold answers. Never raises on account of the answer, and never evaluates it as code."""
    return bool(said.strip()) and any(_equal(said, gold) for gold in golds)


def _equal(said: str, gold: str) -> bool:
    ours, theirs = number_values(said), number_values(gold)
    if ours and theirs:
        return bool(ours & theirs)
    if theirs and _UNWORKED.search(strip_latex(said)):
        return False  # the question again, and not its answer
    if wordy(gold):
        return verdict.exact_match(said, [gold])
    one, other = strip_latex(said), strip_latex(gold)
    # An answer that lists more things than the gold does not count.
    return one == other or (tame(said) and tame(gold) and one.count(",") == other.count(",") and _same(one, other))


def wordy(gold: str) -> bool:
    """Whether an answer is words: letters, blanks and the punctuation of names, without a digit."""
    return all(c.isalpha() or c in " '’.,-&" for c in gold) and sum(c.isalpha() for c in gold) > 1


def tame(written: str) -> bool:
    """Whether a text is safe for math-verify."""
    bare = strip_latex(written)
    commands = _COMMAND.findall(bare)
    bare = _COMMAND.sub(" ", bare)
    powers = _POWER.findall(bare)
    return (
        0 < len(written) <= LONGEST_ANSWER
        and bare.isascii()
        and set(commands) <= COMMANDS
        and bare.count("^") == len(powers) <= 1
        and not _STRANGE.search(bare)
    )


@lru_cache(maxsize=4096)
def _same(said: str, gold: str) -> bool:
    """math-verify's comparison of two safe texts; False where it cannot parse one."""
    _load_sympy()
    return _compared(said, gold, SECONDS)


@lru_cache(maxsize=1)
def _load_sympy() -> None:
    """It loads parts of itself as they are used, which on a busy machine may take longer than a comparison may: a right answer
    would count as wrong. Not before it is needed, since most answers are plain numbers."""
    _compared("x+1", "1+x", TO_LOAD)


def _compared(said: str, gold: str, seconds: int) -> bool:
    from math_verify import verify

    alarm = seconds if threading.current_thread() is threading.main_thread() else None
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


def render(problem: Problem) -> family.Rendered:
    """The question and an instruction; the worked solution and the answer in a box."""
    solution = "\n".join([*problem.steps, f"The answer is {verdict.BOX}{problem.answers[0]}}}."])
    return family.Rendered(f"{problem.question}\n{INSTRUCTION}\n", solution, problem.answers[0])


def dumps(problem: Problem) -> str:
    """JSON, the same for equal problems."""
    return family.compact_json(problem._asdict())


loads = family.from_json(Problem)
"""The inverse of `dumps`."""


# The verifier judges the final answer.
#
# strict: the last `\boxed{}` holds the answer and nothing else. answer: that, or, where there is no box, the last number is
# right, as in most scorers of GSM8K. A repeated answer never counts, nor one in a box that is not closed, in digits of another
# script, or as an operation that is not worked out (`41+1`).


REPEATS = 5
"""Equal numbers at the end of a completion without a box from which on it counts as a dump."""


def verify(problem: Problem, completion: str, options: spec.Verify) -> verdict.Verdict:
    """The verdict on any text. Never raises on account of the text. Errors: truncated (no answer), dumped (too many), answer
    (wrong), unboxed (right, but in no box)."""
    opened = verdict.BOX in completion
    boxed = verdict.extract_answer(completion) if opened else None
    said = "" if opened else unboxed(completion, problem.answers[0])
    said = said if boxed is None else boxed
    spread = verdict.is_answer_dump(completion) or (boxed is None and repeats(completion))
    right = not spread and equal(said, problem.answers)
    error = verdict.first_error(truncated=not said and boxed is None, dumped=spread, answer=not right, unboxed=boxed is None)
    return verdict.Verdict(error == "none", right, float(right), error, said=said)


def unboxed(completion: str, gold: str) -> str:
    """The answer of a completion without a box: for words what follows the last `#`, else the last number, after that mark where
    there is one; empty where there is none."""
    marked = completion.rpartition(verdict.MARK)[2].strip().split("\n")[0] if verdict.MARK in completion else ""
    return marked if wordy(gold) or number_values(marked) else last_number(completion)


def repeats(completion: str) -> bool:
    """Whether a completion ends in the same number REPEATS times."""
    found = NUMBER.findall(completion)[-REPEATS:]
    return len(found) == REPEATS and len(set(found)) == 1


WORKED = re.compile(r"((?:\(?\s*\d[\d.,]*%?\s*\)?\s*[-+*/]\s*)+\(?\d[\d.,]*\)?)\s*=")
"""An operation of numbers, before the sign of equality."""


def calls(problem: Problem) -> dict[str, list[str]]:
    """For Python each operation that the worked solution states, such as `48/2` of `48/2 = 24`, where all can be evaluated."""
    found = [part.replace(",", "").replace("%", "/100").strip() for line in problem.steps for part in WORKED.findall(line)]
    return {"python": found} if found else {}


QA = family.Family(name="qa", errors=("truncated", "dumped", "answer", "unboxed"), loads=loads, verify=verify, calls=calls)


# Counts of words (arXiv:2404.06654), after the generators of NVIDIA/RULER at c3f5e3b, scripts/data/synthetic:
# common_words_extraction.py lines 85-98, freq_words_extraction.py lines 74-107. As there: how often words occur, and the noise of
# the frequent ones. Other than there: invented words for the common ones, too, so many words and not so many tokens, a wording of
# our own, no example before the question, and a score that counts what is said in addition (F1 in place of recall).


NOISE = "..."
LISTED = re.compile(r"[a-z]+|\.\.\.")
PROSE = ("Count how often each word occurs here.", "Which {} words, other than dots, occur most often?")
"""Around the list."""


def generate_word_counts(task: spec.WordCounts, seed: int, index: int, op: int) -> Asked:
    """The list keyed by (seed, index, op). The answer has common words as they first occur, frequent ones by their counts."""
    options = (task.counts, *task.repeats, task.others, task.words, task.letters, task.length)
    draw = stream("word_counts", *options, seed, index, op)
    if task.counts == "common":
        often, seldom = task.repeats
        counts = [often] * op + [seldom] * task.others
    else:
        counts = task.ranks()
    words = drawn_distinct(len(counts), lambda: "".join(chr(97 + draw() % task.letters) for _ in range(task.length)))
    names = words if task.counts == "common" else [NOISE, *words][: len(counts)]
    listed = draw_shuffled(draw, [name for name, count in zip(names, counts, strict=True) for _ in range(count)])
    return Asked(task.counts, _list_prompt(task, listed, op), " ".join(_most(listed, op)))


def _list_prompt(task: spec.WordCounts, listed: list[str], op: int) -> str:
    if task.style == "terse":
        return f"{' '.join(listed)}|{op}="
    shown = [f"{n}. {word}" for n, word in enumerate(listed, 1)] if task.counts == "common" else listed
    return f"{PROSE[0]}\n{' '.join(shown)}\n{PROSE[1].format(op)}\n"


def _most(listed: list[str], op: int) -> list[str]:
    """The words that occur most often, of equal ones the first to occur."""
    return [word for word, _ in Counter(word for word in listed if word != NOISE).most_common(op)]


def solve_word_counts(prompt: str, task: spec.WordCounts) -> str:
    """Count them."""
    if task.style == "terse":
        shown, _, asked = prompt.removesuffix("=").partition("|")
    else:
        _, shown, asked = prompt.strip().split("\n")
    return " ".join(_most(LISTED.findall(shown), int("".join(re.findall(r"\d", asked)))))


def verify_listed(problem: Asked, completion: str, options: spec.Verify) -> verdict.Verdict:
    """Right are all words of the answer and no others, in any order, in the last box or in all of the text; the score is F1.
    Errors: `truncated` (no word), `answer`."""
    boxed = verdict.extract_answer(completion) if verdict.BOX in completion else completion
    said, gold = dict.fromkeys(LISTED.findall(boxed or "")), set(problem.answer.split())
    hits = len(gold.intersection(said))
    score = 2 * hits / (len(gold) + len(said))
    error = verdict.first_error(truncated=not said, answer=score < 1)
    return verdict.Verdict(error == "none", error == "none", score, error, said=" ".join(said)[:200])


def vocabulary_of_counts(task: spec.WordCounts) -> list[str]:
    """Letters of words, digits and signs, and those of the question."""
    question = "|=" if task.style == "terse" else "".join(PROSE).replace("{}", "") + "\n"
    return list(dict.fromkeys(f"{ascii_lowercase[: task.letters]}0123456789 .{question}"))


WORD_COUNTS = family.Generator(
    name="word_counts",
    errors=("truncated", "answer"),
    loads=family.from_json(Asked),
    verify=verify_listed,
    generate=generate_word_counts,
    render=render_asked,
    solve=solve_word_counts,
    structure=structure_of,
    vocabulary=vocabulary_of_counts,
)
