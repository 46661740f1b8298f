"""Programs that a policy writes, run against the tests of their rows: what passes, what is only claimed, and hostile programs."""

import time
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT, copy_configs
from test_dataset import fixture, made
from test_tools import HOSTILE

from interplay.core.model import UserError
from interplay.rl.reward_spec import OutcomeReward, ProcessReward
from interplay.rl.rewards import score_completions
from interplay.study.expand import plan_study
from interplay.tasks import programs
from interplay.tasks.environments import sandbox
from interplay.tasks.environments.spec import PythonTool
from interplay.tasks.families import judge_family
from interplay.tasks.spec import Verify

ADD = programs.Problem("Add.", tuple(map(programs.read_test, ("assert add(1, 2) == 3", "assert add('a', 'b') == 'ab'"))), "")
RIGHT = "def add(a, b):\n    return a + b"


def judged(text: str, problem: programs.Problem = ADD) -> Any:
    return programs.verify(problem, text, Verify())


@pytest.mark.parametrize(
    ("text", "score", "error"),
    [
        (f"I add.\n```python\n{RIGHT}\n```", 1.0, "none"),
        (f"```python\nwrong(\n```\nNo:\n```\n{RIGHT}\n```\nDone.", 1.0, "none"),
        (RIGHT, 1.0, "none"),
        (f"```py\n{RIGHT}", 1.0, "none"),
        ("def add(a, b):\n    return 3", 0.5, "answer"),
        ("def add(a, b):\n    return 4", 0.0, "answer"),
        (f"{RIGHT}\nraise ValueError", 0.0, "raised"),
        ("def add(a, b)", 0.0, "raised"),
        ("", 0.0, "truncated"),
        ("```python\n```", 0.0, "truncated"),
    ],
)
def test_the_score_is_the_share_of_tests_that_the_last_block_passes(text: str, score: float, error: str) -> None:
    verdict = judged(text)
    assert (verdict.score, verdict.error) == (score, error)
    assert verdict.strict == verdict.answer == (score == 1)


FAKES = [
    "class A:\n    def __eq__(self, other):\n        return True\n    def __repr__(self):\n        return '3'\ndef add(a, b):\n    return A()",
    "def add(a, b):\n    raise AssertionError",
    "def add(a, b):\n    print(3)",
    "def add(a, b):\n    return '3'",
    "def add(a, b):\n    return [3]",
    "assert True\nadd = lambda a, b: float('nan')",
    "def add(a, b):\n    return a if type(a) == int else add",
    "known = []\ndef add(a, b):\n    known.append(a)\n    return [0, 3, 'ab'][len(known) - 1]",
    "repr = str = print = len = lambda *a: 3\ndef add(a, b):\n    return None",
]


@pytest.mark.parametrize("code", FAKES)
def test_what_only_claims_to_be_right_passes_no_test(code: str) -> None:
    assert judged(code).score == 0


@pytest.mark.parametrize("code", [code for tool, code in HOSTILE if tool == "python"])
def test_hostile_programs_end_soon_and_leave_nothing(code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    code = code.replace("{file}", str(tmp_path / "made")).replace("{kept}", str(tmp_path / "kept"))
    for text in (code, f"{code}\n{RIGHT}\n{code}", f"def add(a, b):\n    {code.partition(chr(10))[0]}"):
        began = time.monotonic()
        verdict = judged(text)
        assert time.monotonic() - began < 5
        assert verdict == judged(text)
        assert "root:" not in verdict.said
    assert list(tmp_path.iterdir()) == []
    assert judged(RIGHT).strict, "the interpreter after it works"


ENDLESS = "t = ()\nfor _ in range(40):\n    t = (t, t)"
"""A trillion parts to hash, to compare or to write out; forty tuples where they lie."""


@pytest.mark.parametrize("value", ["t", "[t]", "{t}", "{t: 3}", "Box()"])
def test_values_whose_parts_do_not_end_stay_in_the_sandbox(value: str) -> None:
    code = f"{ENDLESS}\nclass Box:\n    kept = t\nlen = isinstance = lambda *a: 0\n{value}"
    began = time.monotonic()
    assert judged(f"{code}\ndef add(a, b):\n    return {value}").error == "raised"
    assert sandbox.run_python(code, (), PythonTool()) == sandbox.NOTHING
    assert time.monotonic() - began < 10


def test_values_are_bounded_and_shown_in_plain_text() -> None:
    found = judged("def add(a, b):\n    return '\\x1b[2J' * 1000")
    assert found.said.isprintable()
    assert len(found.said) < 3 * programs.TOOL.output
    nested = "def add(a, b):\n    found = []\n    for _ in range(5000):\n        found = [found]\n    return found"
    assert judged(nested).score == 0


@pytest.mark.parametrize("text", ["assert f(1)", "f(1) == 2", "assert f(1) == g(2)", "assert 1 < f(1) < 3", "assert", "(" * 999])
def test_tests_of_another_form_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is no `assert EXPRESSION == VALUE` with a literal value"):
        programs.read_test(text)


def test_a_file_becomes_rows_whose_gold_passes_and_whose_tests_are_not_shown(tmp_path: Path) -> None:
    metrics, rows = made(fixture("programs"), tmp_path, format="programs")
    assert metrics["size"] == len(rows) == 5
    for row in rows:
        family = judge_family(row.family)
        assert family.verify(family.loads(row.graph), row.solution, Verify()).strict
        assert "assert" not in row.prompt
        said = family.verify(family.loads(row.graph), row.solution, Verify()).said
        assert said == row.answer, "votes on what programs come to compare with the gold"


def test_rewards_pay_the_share_of_tests(tmp_path: Path) -> None:
    _, rows = made(fixture("programs"), tmp_path, format="programs")
    row = next(one for one in rows if "tin" in one.prompt)
    texts = [row.solution, "def tin(a, b):\n    return a - b", "nothing"]
    verdicts = [programs.verify(programs.loads(row.graph), text, Verify()) for text in texts]
    paid = [
        score_completions(spec, [row] * 3, texts, verdicts).sequence
        for spec in (OutcomeReward(), ProcessReward(form="blend", alpha=0.0))
    ]
    assert paid == [[1.0, 0.0, 0.0], [1.0, pytest.approx(2 / 3), 0.0]]


def test_a_study_reads_such_a_file_and_its_package_is_asked_for_when_it_is_planned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    configs = copy_configs(tmp_path)
    path = configs / "study" / "methods" / "files.yaml"
    text = path.read_text()
    old = next(line for line in text.splitlines() if "gsm8k.jsonl" in line)
    name = old.strip().partition(":")[0]
    path.write_text(text.replace(old, f"  {name}: {{file: data/fixtures/programs.jsonl, format: programs, band: gsm8k}}"))
    monkeypatch.chdir(ROOT)
    monkeypatch.setitem(sandbox.PACKAGES, "python", ("pydantic-monty", "0.0.1"))
    sandbox.check_tool.cache_clear()
    with pytest.raises(UserError, match=r"python needs pydantic-monty 0\.0\.1"):
        plan_study(configs, "methods/files", "smoke")
    sandbox.check_tool.cache_clear()
