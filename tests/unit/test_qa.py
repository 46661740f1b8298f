"""Family qa: numbers by value, mathematics by math-verify, and completions that try to be paid or to hang the judge."""

import subprocess
import sys
import time
from fractions import Fraction

import pytest
from conftest import examples
from hypothesis import given, strategies as st

from interplay.tasks import qa
from interplay.tasks.families import judge_family
from interplay.tasks.qa import equal, last_number, number_values, tame
from interplay.tasks.spec import Verify

PLUMS = qa.Problem("How many plums?", ("48",), ("12*3=36.", "12+36=48."))


def judged(completion: str, *golds: str) -> tuple[bool, bool, str, str]:
    verdict = qa.verify(qa.Problem("q", golds or ("42",)), completion, Verify())
    return verdict.strict, verdict.answer, verdict.error, verdict.said


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("42", 42), ("-42", -42), ("- 42", -42), ("\u221242", -42), ("1,234", 1234), ("1,234,567.50", Fraction(123456750, 100)),
        ("$18", 18), ("\\$18.00", 18), ("-$5", -5), ("$-5", -5), ("$5$", 5), ("18 dollars", 18), ("5 \\text{ apples}", 5), ("12.", 12),
        ("3/4", Fraction(3, 4)), ("\\frac{3}{4}", Fraction(3, 4)), ("-\\dfrac{3}{4}", Fraction(-3, 4)), ("2 1/2", Fraction(5, 2)),
        (".5", Fraction(1, 2)), ("x = 5", 5), ("5 km/h", 5), ("1{,}000", 1000), ("\\text{7}", 7),
    ],
)  # fmt: skip
def test_a_number_is_read_with_commas_units_signs_and_as_a_fraction(written: str, value: int | Fraction) -> None:
    assert number_values(written) == {value}


@pytest.mark.parametrize(
    "written",
    [
        "",
        "the",
        "42 42",
        "42, 43",
        "1,23",
        "3 million",
        "2 dozen",
        "10/0",
        "43=42",
        "42 or 43",
        "2\\pi",
        "2x",
        "4" * 100,
        "1 000",
        "--3",
    ],
)
def test_a_text_that_is_not_one_number_has_no_value(written: str) -> None:
    assert number_values(written) == set()


def test_a_percentage_is_its_number_and_its_hundredth() -> None:
    assert number_values("50\\%") == number_values("50 percent") == {50, Fraction(1, 2)}


@given(st.integers(-(10**12), 10**12))
def test_any_whole_number_is_read_back_with_and_without_commas(number: int) -> None:
    for written in (str(number), f"{number:,}", f"{number}.00", f"{number:,} units"):
        assert number_values(written) == {number}
    assert number_values(last_number(f"so it is {number:,}.")) == {number}


@given(st.integers(-999, 999), st.integers(1, 999))
def test_any_fraction_is_read_back(over: int, under: int) -> None:
    for written in (f"{over}/{under}", f"\\frac{{{over}}}{{{under}}}", f"\\tfrac{{{over}}}{{{under}}}"):
        assert number_values(written) == {Fraction(over, under)}


@pytest.mark.parametrize("written", ["42", "-7", "3.5", "1,234", "\\frac{3}{4}", "-\\frac{1}{8}"])
@pytest.mark.parametrize("other", ["42", "-7", "3.5", "1234", "0.75", "-0.125"])
def test_numbers_agree_with_math_verify(written: str, other: str) -> None:
    from math_verify import parse, verify

    theirs = verify(
        parse(f"\\boxed{{{other}}}", parsing_timeout=None),
        parse(f"\\boxed{{{written}}}", parsing_timeout=None),
        timeout_seconds=None,
    )
    assert equal(written, [other]) == theirs


@pytest.mark.parametrize(
    ("said", "gold", "same"),
    [
        ("1+2x", "2x+1", True), ("2(x+1)", "2x+2", True), ("2x", "2x+1", False), ("\\sqrt{50}", "5\\sqrt{2}", True), ("20+22", "42", False),
        ("2^{10}", "1024", True), ("\\frac{\\pi}{2}", "\\frac{1}{2}\\pi", True), ("(1,2)", "(1,2)", True), ("(2,1)", "(1,2)", False),
        ("Green", "green", True), ("the green", "green", True), ("green or red", "green", False), ("", "2x+1", False), ("x^2", "x^2", True),
    ],
)  # fmt: skip
def test_mathematics_and_words_are_compared_by_meaning(said: str, gold: str, same: bool) -> None:
    assert equal(said, [gold]) is same


def test_an_alias_counts() -> None:
    assert equal("0.25", ["one quarter", "1/4"])


@pytest.mark.parametrize(
    "hostile",
    [
        "9**9**9**9", "9^{9^{9^{9}}}", "9^9^9^9", "((9^{99})^{99})^{99}", "10000000!", "9^{999999999}", "9^{9 9 9 9 9}", "9^9999999",
        "\\binom{1000000000}{500000000}", "\\sum_{i=1}^{999999999} i", "\\int e^{x^2}", "\\prod x", "1e999999999", "1e99999999",
        "(" * 500, "\\frac{" * 200, "9" * 100_000, "__import__('os').system('true')", "().__class__", "exec('1')", "x" * 10_000,
        "factorial(10**8)", "\\gcd(1,2)", "\\log_{2}^{9}{9}", "\\sqrt[999999999]{2}", "2^{2}^{2}", "2^x^x", "2^{-99}^{99}",
    ],
)  # fmt: skip
@pytest.mark.parametrize("gold", ["42", "2x+1"])
def test_a_hostile_answer_is_wrong_at_once(hostile: str, gold: str) -> None:
    equal("1+2x", ["2x+1"])  # sympy is loaded
    started = time.monotonic()
    assert judged(f"So \\boxed{{{hostile}}}", gold)[:2] == (False, False)
    assert time.monotonic() - started < 3


@examples(150)
@given(st.text(alphabet="0123456789x+-*/^{}()\\!,=. fracsqt", max_size=40))
def test_no_text_raises_or_hangs_the_judge(written: str) -> None:
    judged(f"\\boxed{{{written}}}", "2x+1")
    judged(written, "42")


def test_what_math_verify_may_see_has_no_tower_of_powers_and_no_names() -> None:
    assert tame("2x^{2}+1")
    assert tame("\\frac{\\sqrt{3}}{2}")
    assert not any(tame(written) for written in ("x^{2}^{3}", "x^2+y^2", "2^{123}", "a!", "sin(x)", "3 4", "1" * 21, ""))


def test_the_gold_solution_is_strict_and_its_prompt_asks_for_a_box() -> None:
    prompt, solution, answer = qa.render(PLUMS)
    assert prompt == "How many plums?\nReason step by step, and put the final answer in \\boxed{}.\n"
    assert solution == "12*3=36.\n12+36=48.\nThe answer is \\boxed{48}."
    assert answer == "48"
    assert qa.verify(PLUMS, solution, Verify()).strict


def test_a_problem_is_read_back_as_it_was() -> None:
    assert qa.loads(qa.dumps(PLUMS)) == PLUMS
    assert judge_family("qa") is qa.QA


@pytest.mark.parametrize(
    ("completion", "expected"),
    [
        ("so \\boxed{42}", (True, True, "none", "42")),
        ("so \\boxed{42 dollars}.", (True, True, "none", "42 dollars")),
        ("\\boxed{7} no, \\boxed{42}", (True, True, "none", "42")),
        ("\\boxed{41}, not 42", (False, False, "answer", "41")),
        ("it is 7 + 35 = 42.", (False, True, "unboxed", "42")),
        ("#### 42\nThat is 7 too many.", (False, True, "unboxed", "42")),
        ("it is 42, or 43", (False, False, "answer", "43")),
        ("no idea", (False, False, "truncated", "")),
        ("", (False, False, "truncated", "")),
    ],
)
def test_the_box_counts_strictly_and_the_last_number_where_there_is_none(completion: str, expected: tuple) -> None:
    assert judged(completion) == expected


@pytest.mark.parametrize(
    "hack",
    [
        "\\boxed{}", "\\boxed{ }", "\\boxed{the}", "\\boxed{41, 42, 43}", "\\boxed{41 42 43 44}", "\\boxed{A) 41 B) 42}", "\\boxed{42 or 41}",
        "\\boxed{42}" * 20, "42 " * 20, "\\boxed{" + "42 " * 20 + "}", "\\boxed{1421}", "\\boxed{41=42}", "\\boxed{\\{41,42\\}}",
        "\\boxed{42.5}", "\\boxed{x}", "\\boxed{42;41}", "\\boxed{41\\le x\\le 43}", "\\boxed{\\pm 42}",
    ],
)  # fmt: skip
def test_no_hack_is_paid(hack: str) -> None:
    strict, answer, *_ = judged(hack)
    assert (strict, answer) == (False, False)


SLOW = """
import sys, time
from math_verify import parse, verify
from interplay.tasks.qa import equal

class Slow:
    left = 1
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("sympy", "antlr4") and Slow.left:
            Slow.left = 0
            time.sleep(3)

sys.meta_path.insert(0, Slow())
print(equal("x+1", ["1+x"]), Slow.left)
"""
"""A machine on which what the first comparison imports takes longer than a comparison may."""


def test_what_the_first_comparison_of_a_process_loads_takes_no_time_of_it() -> None:
    made = subprocess.run([sys.executable, "-c", SLOW], capture_output=True, text=True, check=True)
    assert made.stdout.split() == ["True", "0"]
