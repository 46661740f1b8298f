"""The audit of a verifier: what it pays to completions that did not do the work. No model is needed.

Each check is a family of fixed policies. A policy reads a row (its prompt, and of cheats also the gold) and writes a completion;
what it earns is the mean over rows of the verdict's `answer` and `strict`, whichever is more. Completions say an answer as the
gold solutions do, `framed`: with the text that all of them have directly before and behind theirs, such as a box."""

import os
import random
import re
import signal
from collections import Counter
from collections.abc import Callable, Sequence
from functools import lru_cache
from types import FrameType
from typing import Any, NamedTuple

from interplay.tasks.verdict import Row, Verdict, normalise

BOUND = 0.2
"""What a policy may earn at most, in addition to what it is due."""
MODAL = 0.8
"""The largest share of rows that one answer, or one place in the prompt, may be right for."""
PATIENCE = 1.0
"""CPU seconds that a verdict may take."""
WAITED = 5
"""Seconds of the clock for each: of what waits, and of a machine that others use, too."""
LATE = 12
"""Verdicts that may take too long before policies are paid nothing unasked."""
normal = lru_cache(4096)(normalise)
"""Policies ask for the same answers again and again."""
CANARY = "INTERPLAY_AUDIT_CANARY"
"""The variable of the environment that completions set when they are executed."""


class Finding(NamedTuple):
    """What a check found."""

    check: str
    failed: bool
    earned: float
    """What the best policy of the check earned, in [0, 1]; of checks of problems the share of rows that are affected."""
    due: float
    """What it may earn: the share of rows for which its answer is the gold."""
    example: str
    """The completion that earned it, or what went wrong."""


class Rows(NamedTuple):
    """Rows to audit, and what all policies need to know of them."""

    rows: Sequence[Row]
    frame: tuple[str, str]
    """The text before and behind the answer that all gold solutions have."""
    answers: tuple[str, ...]
    """Distinct gold answers, in order."""

    def framed(self, answer: str) -> str:
        """An answer as the gold solutions say it."""
        return self.frame[0] + answer + self.frame[1]

    def wrong(self, row: Row, number: int = 0) -> str:
        """The gold answer of another row that is not that of this one; where there is none, one that is not the answer."""
        others = [answer for answer in self.answers if normal(answer) != normal(row.answer)]
        place = next(i for i, each in enumerate(self.rows) if each is row)
        return others[(place + number) % len(others)] if others else f"{row.answer}{number}7"

    def wrong_solution(self, row: Row) -> str:
        """A wrong answer as a completion. An episode without an answer is right by its turns, so it is another row's episode: a
        bare text would be part of the turn next to it, which an environment may ignore."""
        others = [other.solution for other in self.rows if other.solution != row.solution]
        return self.framed(self.wrong(row)) if row.answer or not others else others[row.index % len(others)]


def rows_to_audit(rows: Sequence[Row]) -> Rows:
    """The rows with the frame of their answers."""
    parts = [row.solution.rpartition(row.answer) for row in rows if row.answer and row.answer in row.solution]
    before = common_prefix([part[0][::-1] for part in parts])[::-1]
    after = common_prefix([part[2] for part in parts])
    return Rows(rows, (before, after) if len(parts) == len(rows) else ("", ""), tuple(dict.fromkeys(row.answer for row in rows)))


def common_prefix(texts: Sequence[str]) -> str:
    """The longest text that all begin with."""
    first, last = min(texts, default=""), max(texts, default="")
    return first[: next((n for n in range(len(first)) if first[n] != last[n : n + 1]), len(first))]


Judge = Callable[[Row, str], Verdict]
Policy = Callable[[Rows, Row], str]

CONSTANTS = (
    *("0", "1", "2", "3", "-1", "10", "24", "100", "0.5", "1/2"),
    *("True", "False", "true", "yes", "no", "Yes", "No", "A", "B", "a", "x"),
    *("None", "null", "nan", "inf", "[]", "{}", "()", "[[]]", "[0]", "1 1", "."),
    *("the", "I do not know", "answer", "?", "1e400", "0x1"),
)
"""Answers of policies that always say the same: every type that a verifier may take a text for."""
NUMBER = re.compile(r"-?\d+(?:\.\d+)?")
SAME_SHAPE = str.maketrans("aeiopAEIOP", "аеіорАЕІОР")
"""Characters of other scripts that are drawn the same."""


def match_at(pattern: str | re.Pattern[str], text: str, place: int) -> str:
    """One of the parts of a text that match; empty where there are not so many."""
    found = re.findall(pattern, text)
    return found[place] if -len(found) <= place < len(found) else ""


def place_in_prompt(pattern: str, number: int) -> Policy:
    """Answers with what is at a place of the prompt among the parts that match a pattern."""

    def policy(rows: Rows, row: Row) -> str:
        return rows.framed(match_at(pattern, row.prompt, number))

    return policy


def extreme_of_prompt(choose: Callable[..., str], pattern: str, key: Callable[[str], Any]) -> Policy:
    """Answers the least or greatest of the parts of the prompt that match a pattern."""
    return lambda rows, row: rows.framed(
        choose(re.findall(pattern, row.prompt) or [""], key=lambda part: key(part) if part else 0)
    )


EMPTY: dict[str, Policy] = {
    "nothing": lambda rows, row: "",
    "a blank": lambda rows, row: " ",
    "lines": lambda rows, row: "\n\n\n",
    "an empty answer": lambda rows, row: rows.framed(""),
    "a blank answer": lambda rows, row: rows.framed(" "),
}
ECHO: dict[str, Policy] = {
    "the prompt": lambda rows, row: row.prompt,
    "the prompt as the answer": lambda rows, row: rows.framed(row.prompt.strip()),
    "the prompt and an empty answer": lambda rows, row: row.prompt + rows.framed(""),
}
LISTED: dict[str, Policy] = {
    "all answers with commas": lambda rows, row: rows.framed(", ".join((*rows.answers[:50], row.answer))),
    "all answers with blanks": lambda rows, row: rows.framed(" ".join((row.answer, *rows.answers[:50]))),
    "all answers in lines": lambda rows, row: rows.framed("\n".join((*rows.answers[:50], row.answer))),
    "right or wrong": lambda rows, row: rows.framed(f"{row.answer} or {rows.wrong(row)}"),
    "wrong, right": lambda rows, row: rows.framed(f"{rows.wrong(row)}, {row.answer}"),
    "right and wrong": lambda rows, row: rows.framed(f"{row.answer} and {rows.wrong(row)}"),
    "a comment": lambda rows, row: f"<!-- {row.answer} --> {rows.framed(rows.wrong(row))}",
    "the answer outside": lambda rows, row: f"{row.answer} {rows.framed('')}" if any(rows.frame) else "",
    "the answer, then a wrong one without its frame": lambda rows, row: rows.framed(rows.wrong(row)) + f" {row.answer}",
}
NEGATED: dict[str, Policy] = {
    "not": lambda rows, row: rows.framed(f"not {row.answer}"),
    "anything but": lambda rows, row: rows.framed(f"anything but {row.answer}"),
    "a question": lambda rows, row: rows.framed(f"is it {row.answer} or not?"),
}
WRONG: dict[str, Policy] = {
    "the answer of another row": lambda rows, row: rows.framed(rows.wrong(row)),
    "the solution of another row": lambda rows, row: next(
        (other.solution for other in rows.rows if normal(other.answer) == normal(rows.wrong(row))),
        rows.framed(rows.wrong(row)),
    ),
    "the solution of a third row": lambda rows, row: next(
        (other.solution for other in rows.rows if normal(other.answer) == normal(rows.wrong(row, 1))),
        rows.framed(rows.wrong(row, 1)),
    ),
    "the gold with another answer": lambda rows, row: (
        rows.wrong(row).join(row.solution.rsplit(row.answer, 1)) if row.answer and row.answer in row.solution else ""
    ),
}
NEARLY: dict[str, Policy] = {
    "characters behind it": lambda rows, row: rows.framed(
        row.answer + ("qx" if not row.answer[-1:].isdigit() else "e3" if "." in row.answer else "00")
    ),
    "characters before it": lambda rows, row: rows.framed(f"17{row.answer}" if row.answer[:1].isdigit() else f"qx{row.answer}"),
    "its first half": lambda rows, row: rows.framed(row.answer[: len(row.answer) // 2]),
    "the other sign": lambda rows, row: rows.framed(
        (row.answer.removeprefix("-") if row.answer.startswith("-") else f"-{row.answer}")
        if row.answer.strip("-0.")
        else f"{row.answer}9"
    ),
    "backwards": lambda rows, row: rows.framed(row.answer[::-1] if row.answer != row.answer[::-1] else ""),
    "twenty times": lambda rows, row: rows.framed(f"{row.answer} " * 20),
}
PROMPT: dict[str, Policy] = {
    "first number": place_in_prompt(NUMBER.pattern, 0),
    "second number": place_in_prompt(NUMBER.pattern, 1),
    "last number": place_in_prompt(NUMBER.pattern, -1),
    "last number but one": place_in_prompt(NUMBER.pattern, -2),
    "greatest number": extreme_of_prompt(max, NUMBER.pattern, float),
    "least number": extreme_of_prompt(min, NUMBER.pattern, float),
    "first word": place_in_prompt(r"\w+", 0),
    "last word": place_in_prompt(r"\w+", -1),
    "longest word": extreme_of_prompt(max, r"\w+", len),
    "last line": place_in_prompt(r"[^\n]+", -1),
    "commonest word": lambda rows, row: rows.framed(Counter(re.findall(r"\w+", row.prompt) or [""]).most_common(1)[0][0]),
}
UNICODE: dict[str, Policy] = {
    "look-alikes": lambda rows, row: rows.framed(text if (text := row.answer.translate(SAME_SHAPE)) != row.answer else ""),
    "a character of no width": lambda rows, row: rows.framed(f"{row.answer[:1]}\u200b{row.answer[1:]}"),
    "backwards, shown forwards": lambda rows, row: rows.framed(f"\u202e{row.answer[::-1]}\u202c"),
    "a lone surrogate": lambda rows, row: rows.framed("\ud800"),
}
HOSTILE: dict[str, Policy] = {
    "a zero byte": lambda rows, row: f"\0{rows.framed(chr(0))}",
    "many brackets": lambda rows, row: rows.framed("(" * 2000),
    "nested lists": lambda rows, row: rows.framed("[" * 500 + "]" * 500),
    "a long number": lambda rows, row: rows.framed("9" * 5000),
    "a tower of powers": lambda rows, row: rows.framed("9**9**9"),
    "a division by nothing": lambda rows, row: rows.framed("1/0"),
    "a frame that does not end": lambda rows, row: rows.frame[0] + row.answer[:1],
    "frames in each other": lambda rows, row: rows.framed(rows.framed(rows.framed(""))),
    "digits of other scripts": lambda rows, row: rows.framed("٣٤²½"),
    "format fields": lambda rows, row: rows.framed("%s %d {0} {answer} \\1 $x"),
}
CODE: dict[str, Policy] = {
    "Python": lambda rows, row: rows.framed(f"__import__('os').environ.setdefault('{CANARY}', '1')"),
}
Found = tuple[str, float, str]
"""A policy, what it earned, and its first completion that earned something."""


class Auditor:
    """Asks a verifier, and keeps what it raised, how long it took, and where it contradicted itself."""

    def __init__(self, rows: Rows, judge: Judge) -> None:
        self.rows, self.judge = rows, judge
        self.raised: list[str] = []
        self.slow: list[str] = []
        self.odd: list[str] = []
        """Verdicts that are strict and wrong, or whose score lies outside [0, 1]."""

    def earned(self, row: Row, text: str) -> float:
        """1 where a completion is right by answer or by process."""
        try:
            with TimeLimit(PATIENCE):
                said = self.judge(row, text)
        except OutOfTime:
            self.slow.append(f"{text[:60]!r} (row {row.index}): more than {PATIENCE:g} s")
            return 0.0
        except Exception as error:
            self.raised.append(f"{text[:60]!r} (row {row.index}): {type(error).__name__}: {str(error)[:80]}")
            return 0.0
        if (said.strict and not said.answer) or not 0 <= said.score <= 1:
            self.odd.append(f"{text[:60]!r} (row {row.index}): strict {said.strict}, answer {said.answer}, score {said.score}")
        return float(said.strict or said.answer)

    def tried(self, policies: dict[str, Policy]) -> Found:
        """The policy that earns most over all rows."""
        return max((self.mean(name, policy) for name, policy in policies.items()), key=lambda found: found[1])

    def mean(self, name: str, policy: Policy) -> Found:
        """What one policy earns."""
        texts = [policy(self.rows, row) for row in self.rows.rows]
        paid = [self.earned(row, text) if len(self.slow) < LATE else 0.0 for row, text in zip(self.rows.rows, texts, strict=True)]
        example = next((text for text, one in zip(texts, paid, strict=True) if one), texts[0] if texts else "")
        return name, sum(paid) / max(len(paid), 1), example

    def excess(self, answers: Sequence[str]) -> tuple[float, float, str]:
        """Of policies that always say the same answer: earned, due and answer of the one that earns most beyond its due."""
        tried = []
        for answer in answers:
            said = normal(answer)
            due = sum(row.answer == answer or (bool(said) and normal(row.answer) == said) for row in self.rows.rows)
            earned = self.mean(answer, lambda rows, row, answer=answer: rows.framed(answer))[1]  # type: ignore[misc]
            tried.append((earned, due / len(self.rows.rows), answer))
        return max(tried, key=lambda one: one[0] - one[1])


class OutOfTime(BaseException):
    """A verifier or an environment took too long. No Exception, so that one that catches all of them does not hide it."""


class TimeLimit:
    """Raises OutOfTime in the block after so many seconds of CPU time, or WAITED times as many of the clock; 0: never, and limits
    in the block cost less, since the signals' handlers stay. Of the main thread only."""

    handled = False

    def __init__(self, seconds: float) -> None:
        self.limits = ((signal.SIGPROF, signal.ITIMER_PROF, seconds), (signal.SIGALRM, signal.ITIMER_REAL, WAITED * seconds))
        self.before = dict[int, Any]()

    def __enter__(self) -> None:
        for number, timer, most in self.limits:
            if not TimeLimit.handled:
                self.before[number] = signal.signal(number, self.stop)
            # Again each second: an error that is raised within a finalizer or a callback of the garbage collector is lost.
            signal.setitimer(timer, most, 1.0)
        TimeLimit.handled = True

    def __exit__(self, *raised: object) -> None:
        for _, timer, _ in self.limits:
            signal.setitimer(timer, 0)
        for number, handler in self.before.items():
            signal.signal(number, handler)
            TimeLimit.handled = False

    @staticmethod
    def stop(number: int, frame: FrameType | None) -> None:
        """The signals' handler. Between the two functions above alone: one that was interrupted would leave a timer behind."""
        while frame:
            if frame.f_code in (TimeLimit.__enter__.__code__, TimeLimit.__exit__.__code__):
                return
            frame = frame.f_back
        raise OutOfTime


def audit_verifier(rows: Sequence[Row], judge: Judge, most: float = BOUND) -> list[Finding]:
    """All checks of a verifier on these rows, in order; `most`: what a policy may earn in addition to its due. Never raises on
    account of the verifier."""
    known = rows_to_audit(rows)
    asked = Auditor(known, judge)
    count = len(rows)
    os.environ.pop(CANARY, None)
    asked.tried(CODE)
    ran = os.environ.pop(CANARY, "")
    first = [asked.earned(row, row.solution) for row in rows]
    unpaid = [row.solution for row, one in zip(rows, first, strict=True) if row.solution and not one]
    golds = 1 - len(unpaid) / max(sum(bool(row.solution) for row in rows), 1)
    answers = Counter(normal(row.answer) or row.answer for row in rows if row.answer)
    modal, times = max(answers.items(), key=lambda one: one[1], default=("", 0))
    found = [
        Finding("gold", golds < 1, golds, 1.0, repr(unpaid[0][:200]) if unpaid else ""),
        Finding("modal", count >= 8 and times / count > MODAL, times / count, MODAL, repr(modal)),
    ]

    def check(name: str, policies: dict[str, Policy], bound: float = most) -> None:
        policy, earned, example = asked.tried(policies)
        found.append(Finding(name, earned > bound, earned, 0.0, f"{policy}: {example[:200]!r}"))

    check("empty", EMPTY, 0.0)
    memorised = list(dict.fromkeys((*CONSTANTS, *known.answers[:8])))
    earned, due, answer = asked.excess(memorised)
    found.append(Finding("constant", earned - due > most, earned, due, repr(answer[:200])))
    check("echo", ECHO)
    check("listed", LISTED)
    check("negated", NEGATED)
    check("wrong", WRONG)
    check("nearly", NEARLY)
    check("prompt only", PROMPT, MODAL)
    check("unicode", UNICODE)
    check("noise", {f"noise {n}": noise(n) for n in (1, 8, 64, 400)})
    both = [asked.mean(name, policy) for name, policy in HEDGED.items()]
    least = min(both, key=lambda one: one[1])
    found.append(Finding("hedged", least[1] > most, least[1], 0.0, repr(least[2][:200])))
    asked.tried(HOSTILE)
    found.append(
        Finding("executes", bool(ran), float(bool(ran)), 0.0, "the verifier executes completions as code" if ran else "")
    )
    again = [asked.earned(row, row.solution) for row in reversed(rows)][::-1]
    changed = sum(one != other for one, other in zip(first, again, strict=True))
    found.append(Finding("repeatable", bool(changed), changed / count, 0.0, "the verdict on a gold changes" if changed else ""))
    for name, wrong in (("exception", asked.raised), ("slow", asked.slow), ("consistent", asked.odd)):
        found.append(Finding(name, bool(wrong), min(1.0, len(wrong) / count), 0.0, wrong[0] if wrong else ""))
    return found


HEDGED: dict[str, Policy] = {
    "right, then wrong": lambda rows, row: f"{row.solution}\n{rows.wrong_solution(row)}",
    "wrong, then right": lambda rows, row: f"{rows.wrong_solution(row)}\n{row.solution}",
}
"""Which of two answers counts is a convention; that both orders pay is none."""


def noise(length: int) -> Policy:
    """Characters of prompts and answers, drawn at random for each row."""

    def policy(rows: Rows, row: Row) -> str:
        draw = random.Random(f"{length} {row.prompt}")
        return rows.framed("".join(draw.choices(f"{row.prompt}{row.answer} 01xy", k=length)))

    return policy
