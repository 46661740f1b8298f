"""A reward of the user's own is called when its study is planned: in a process of its own, on problems of the stage's own data."""

from pathlib import Path
from typing import Any

import pytest
from command_line import interplay
from lab import Lab

from interplay.core.digest import canonical
from interplay.rl import custom
from interplay.rl.reward_spec import OwnReward
from interplay.tasks.op_dag.spec import OpDag

OURS = "def f(problems, completions, verdicts, per_character=0.0):\n"
TRLS = "def f(completions, answer, **kwargs):\n"
SET = {
    "kind": "problems",
    "spec": {"task": canonical(OpDag()), "bands": {"id": {"2": 1.0}}, "shares": {"id": 1.0}, "size": 9, "split": "rl"},
    "path": None,
}


def tried(code: str, asked: Any = (SET,), **options: Any) -> dict[str, Any]:
    return custom.try_reward(OwnReward(function="mine.py:f", source=code, options=options), asked)


@pytest.mark.parametrize(
    ("code", "paid"),
    [
        (f"{OURS}    return [float(v.strict) for v in verdicts]", [1.0, 0.0, 0.0]),
        (f"{TRLS}    return [float(c.endswith(a)) for c, a in zip(completions, answer)]", [1.0, 0.0, 0.0]),
        (f"{TRLS}    return [len(c) > 0 for c in completions]", [1.0, 0.0, 1.0]),
    ],
)
def test_it_gets_the_solution_nothing_and_a_wrong_completion_of_each_problem(code: str, paid: list[float]) -> None:
    assert tried(code) == {"paid": [["gold", paid[0]], ["empty", paid[1]], ["wrong", paid[2]]], "problems": 3}


def test_options_are_passed() -> None:
    assert tried(f"{OURS}    return [per_character for c in completions]", per_character=0.5)["paid"][0] == ["gold", 0.5]


@pytest.mark.parametrize("head", [OURS, TRLS])
@pytest.mark.parametrize(
    ("body", "line", "said"),
    [
        ("x = 0\n    return [1 / x for c in completions]", 3, "f raises ZeroDivisionError: division by zero"),
        ("return [helper(c) for c in completions]\ndef helper(c):\n    return c.no_such", 4, "f raises AttributeError"),
        ("return [1.0]", 1, "f must return 9 finite floats, not 1: [1.0]"),
        ("return [float('nan')] * len(completions)", 1, "f must return 9 finite floats, not 9: [nan"),
        ("return ['a'] * len(completions)", 1, "f must return 9 finite floats, not 9: ['a'"),
        ("return None", 1, "f must return 9 finite floats, not None"),
        ("import sys\n    sys.exit(3)", 3, "f raises SystemExit: 3"),
    ],
)
def test_what_is_wrong_with_its_code_is_said_with_the_line(head: str, body: str, line: int, said: str) -> None:
    found = tried(f"{head}    {body}\n")
    assert (found["file"], found["line"]) == ("mine.py", line)
    assert found["error"].startswith(said)


def test_one_that_takes_long_is_left_and_not_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(custom, "TRIAL_SECONDS", 1)
    code = f"{TRLS}    import time\n    try:\n        time.sleep(30)\n    except Exception:\n        pass\n"
    assert tried(code) == {"left": "takes more than 1 s for a few completions (it was at line 4)"}


STUDY = """defaults: [/study/quickstart@_here_, _self_]
question: Does it?
arms:
  mine: {path: [base, rl], control: rl_edge, set: {rl.reward: {name: "mine.py:f"}}}
claims: []
"""


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lab:
    monkeypatch.chdir(tmp_path)
    made = Lab(tmp_path)
    (tmp_path / "configs/study/own.yaml").write_text(STUDY)
    return made


def plan(capsys: pytest.CaptureFixture[str], code: str) -> tuple[int, str, str]:
    Path("configs/study/mine.py").write_text(code)
    return interplay(capsys, "plan", "own", "--scale", "smoke")


def test_a_plan_and_a_run_refuse_one_that_fails_at_the_line_of_the_arm(lab: Lab, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, said = plan(capsys, f"{OURS}    return [v.anser for v in verdicts]\n")
    assert (code, said.count("\n")) == (2, 1)
    assert "configs/study/own.yaml:4: arms.mine.set.rl.reward.name = 'mine.py:f': configs/study/mine.py:2: f raises " in said
    assert "AttributeError: 'Verdict' object has no attribute 'anser'" in said
    assert interplay(capsys, "run", "own", "--scale", "smoke") == (2, "", said)


def test_a_process_that_the_reward_ends_is_refused_and_what_it_prints_is_dropped(
    lab: Lab, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _, said = plan(capsys, f"{TRLS}    import os\n    print('so', flush=True)\n    os._exit(7)\n")
    assert (code, said.count("\n")) == (2, 1)
    assert "configs/study/mine.py:1: ends the process (exit code 7)" in said


def test_it_is_called_once_for_one_content(lab: Lab, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    called = tmp_path / "called"
    code = (
        f"{TRLS}    open({str(called)!r}, 'a').write('x')\n    print('noise')\n    return [float(bool(c)) for c in completions]\n"
    )
    for text, times in ((code, 1), (code, 1), (f"{code}\n", 2)):
        done, said, _ = plan(capsys, text)
        assert done == 0
        assert "reward mine.py:f pays on average of 3 problems of data.edge: gold 1, empty 0, wrong 1" in said
        assert len(called.read_text()) == times


def test_it_is_left_where_its_rows_are_made_by_a_stage_that_is_not_here_or_by_wish(
    lab: Lab, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    own = Path("configs/study/own.yaml")
    own.write_text(STUDY + "data:\n  few: {mix: {edge: 1.0}, steps: [{name: deduplicate}]}\n")
    own.write_text(own.read_text().replace("{rl.reward: ", "{rl.data: {few: 1.0}, rl.reward: ").replace("control: rl_edge, ", ""))
    failing = f"{OURS}    return 1 / 0\n"
    code, said, refused = plan(capsys, failing)
    assert code == 0, refused
    assert "reward mine.py:f: first called in the run, since data.few is not made yet" in said
    own.write_text(STUDY)
    monkeypatch.setenv("INTERPLAY_TRY_REWARDS", "0")
    assert plan(capsys, failing)[0] == 0


def test_locks_are_made_and_checked_without_a_call(lab: Lab) -> None:
    Path("configs/study/mine.py").write_text(f"{OURS}    return 1 / 0\n")
    assert lab.plan("own").stages
