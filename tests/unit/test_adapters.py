"""Environments of other packages: each is deterministic by replay whatever runs beside it, its expert's episodes are right, and it
goes through pre-training and RL. A package that is not installed skips its tests: each is an extra."""

import importlib.util
import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_own_worlds import pre_trained_and_rl

from interplay.core.model import KeyPlace, UserError
from interplay.core.random import stream_key
from interplay.study.context import parse_task
from interplay.tasks.adapters import reasoning_gym
from interplay.tasks.adapters.packages import PackageWorld, Randomness, package, plain
from interplay.tasks.adapters.reasoning_gym import FORMULAS, FROM_FILES, LISTS, REASONING_GYM, is_formula, is_value, settings_of
from interplay.tasks.families import task_family
from interplay.tasks.family import Environment, Step
from interplay.tasks.spec import Verify
from interplay.tasks.transcripts import policy_turns

PACKAGED: dict[str, tuple[str, dict[str, Any], int]] = {
    "textarena": ("textarena", {"name": "textarena", "game": "TicTacToe-v0", "playouts": 8}, 1),
    "kuhn": ("textarena", {"name": "textarena", "game": "KuhnPoker-v0", "playouts": 8}, 1),
    "lake": ("gymnasium", {"name": "gymnasium", "env": "FrozenLake-v1", "config": {"desc": "random", "is_slippery": False}}, 4),
    "taxi": ("gymnasium", {"name": "gymnasium", "env": "Taxi-v4"}, 1),
    "cliff": ("gymnasium", {"name": "gymnasium", "env": "CliffWalkingSlippery-v1", "target": -200.0}, 1),
    "textworld": ("textworld", {"name": "textworld"}, 2),
    "scienceworld": ("scienceworld", {"name": "scienceworld", "task": "find-living-thing"}, 1),
    "bfcl": ("bfcl_eval", {"name": "bfcl", "documented": "signatures"}, 2),
    "withheld": ("bfcl_eval", {"name": "bfcl", "category": "miss_func"}, 3),
}
PLACE = KeyPlace("study.yaml")
HOSTILE = (
    "",
    " ",
    "[",
    "]" * 50,
    "\0",
    "[\ud800]",
    "9" * 5000,
    "[4][5]",
    "__import__('os').system('x')",
    "f" + "(" * 500,
    "%s{0}",
    "power(9, 9**9)",
    "round_number(5, -1000000000)",
    "round_number(number=5, decimal_places=-1000000000)",
    "save",
    "look. restore",
)


def made(name: str) -> tuple[Any, Environment[Any, Any], int]:
    module, keys, op = PACKAGED[name]
    pytest.importorskip(module, reason="an extra")
    task = parse_task(keys, PLACE, Path())
    family = task_family(task)
    assert isinstance(family, Environment)
    return task, family, op


def steps_of(family: Environment[Any, Any], problem: Any, turns: list[str]) -> list[Step]:
    world = family.begin(problem)
    steps = [world.step(turn) for turn in turns]
    world.close()
    return steps


@pytest.mark.parametrize("name", PACKAGED)
def test_the_experts_episodes_are_right_and_problems_are_functions_of_their_keys(name: str) -> None:
    task, family, op = made(name)
    problems = [family.generate(task, 0, index, op) for index in range(3)]
    assert problems == [family.generate(task, 0, index, op) for index in range(3)]
    assert len({family.dumps(problem) for problem in problems}) > 1
    for problem in problems:
        assert family.loads(family.dumps(problem)) == problem
        shown = family.render(problem, task)
        assert shown.prompt.isascii()
        found = family.verify(problem, shown.solution, Verify())
        assert (found.strict, found.score, found.error) == (True, 1.0, "none")
        assert family.verify(problem, policy_turns(shown.solution)[0] + "x", Verify()).error in ("truncated", "answer")


@pytest.mark.parametrize("name", PACKAGED)
def test_an_episode_is_the_same_beside_others_and_disturbs_no_draw_of_the_process(name: str) -> None:
    task, family, op = made(name)
    one, two = (family.generate(task, 1, index, op) for index in range(2))
    turns = [*family.expert(one)[:-1], "look", "[1]", "0", "x"]
    alone = steps_of(family, one, turns)
    random.seed(7)
    np.random.seed(7)
    expected = [random.random(), np.random.random()]
    random.seed(7)
    np.random.seed(7)
    first, second = family.begin(one), family.begin(two)
    beside = []
    for turn in turns:
        beside.append(first.step(turn))
        second.step(turn)
    assert beside == alone
    assert [random.random(), np.random.random()] == expected


@pytest.mark.parametrize("name", PACKAGED)
def test_no_action_raises_and_each_reply_is_text(name: str) -> None:
    task, family, op = made(name)
    problem = family.generate(task, 2, 0, op)
    for action in HOSTILE:
        (step,) = steps_of(family, problem, [action])
        assert all(char == "\n" or "\x1f" < char < "\x7f" for char in step.text)
        assert step.reward is None or abs(step.reward) < 1e6
        json.dumps(dict(step.info))


@pytest.mark.parametrize("name", ["textarena", "lake"])
def test_a_world_of_a_package_is_pre_trained_on_and_goes_through_rl(name: str, tmp_path: Path) -> None:
    task, _, op = made(name)
    lines = pre_trained_and_rl(task, {op: 1.0}, tmp_path, 4096, 4)
    assert lines[0]["turns"] >= 1
    assert lines[-1]["turns"] > 1


@pytest.mark.parametrize(
    ("module", "keys", "says"),
    [
        ("textarena", {"name": "textarena", "game": "TicTacTo-v0"}, "did you mean 'TicTacToe-v0'"),
        ("textarena", {"name": "textarena", "game": "TicTacToe-v0", "players": 5}, "cannot begin with 5 seats"),
        ("textarena", {"name": "textarena", "game": "TicTacToe-v0", "version": "0.1"}, "version = 0.1: .* is installed"),
        ("textarena", {"name": "textarena", "game": "CharacterConclave-v0"}, "cannot be played"),
        ("gymnasium", {"name": "gymnasium", "env": "FrozenLake-v2"}, "none such"),
        ("gymnasium", {"name": "gymnasium", "env": "CartPole-v1"}, "observations are Box, which has no form in text"),
        ("gymnasium", {"name": "gymnasium", "env": "FrozenLake-v1", "config": {"size": 3}}, "cannot be made"),
        ("scienceworld", {"name": "scienceworld", "task": "boill"}, "did you mean 'boil'"),
    ],
)
def test_a_name_that_the_package_has_not_is_refused_when_a_study_is_planned(module: str, keys: dict[str, Any], says: str) -> None:
    pytest.importorskip(module, reason="an extra")
    with pytest.raises(UserError, match=says) as caught:
        parse_task(keys, PLACE, Path())
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", PACKAGED)
def test_a_package_that_is_not_here_is_one_line_with_what_to_type(name: str) -> None:
    module, keys, _ = PACKAGED[name]
    if importlib.util.find_spec(module):
        pytest.skip("it is here")
    with pytest.raises(UserError, match=r"is not installed; .*pip install") as caught:
        parse_task(keys, PLACE, Path())
    assert "\n" not in str(caught.value)


def test_a_package_is_looked_up_by_version() -> None:
    with pytest.raises(UserError, match=r"task x: no-such-thing is not installed; pip install 'interplay\[no-such-thing\]'"):
        package("x", "no-such-thing", "1", "no_such_thing")
    with pytest.raises(UserError, match=r"version = 0\.0: .* is installed; install that version, or write"):
        package("x", "numpy", "0.0", "numpy")


@pytest.mark.parametrize("name", ["textarena", "lake", "textworld", "scienceworld", "withheld"])
def test_a_task_that_says_the_version_which_is_here_is_played(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    module, keys, op = PACKAGED[name]
    pytest.importorskip(module, reason="an extra")
    package.cache_clear()
    monkeypatch.setattr("importlib.metadata.version", lambda distribution: "9.9")
    task = parse_task({**keys, "version": "9.9"}, PLACE, Path())
    family = task_family(task)
    assert isinstance(family, Environment)
    assert steps_of(family, family.generate(task, 0, 5, op), ["x"])
    package.cache_clear()


def test_a_simulator_whose_process_is_gone_is_made_again() -> None:
    task, family, op = made("scienceworld")
    from interplay.tasks.adapters import stories

    problem = family.generate(task, 3, 0, op)
    turns = family.expert(problem)
    expected = steps_of(family, problem, turns)
    world = family.begin(problem)
    found = [world.step(turn) for turn in turns[:2]]
    stories.simulator()._gateway.java_process.kill()
    stories.simulator()._gateway.java_process.wait()
    assert [*found, *(world.step(turn) for turn in turns[2:])] == expected


PROGRAMS = (
    "__import__('os').system('touch {file}')",
    "[__import__('os').system('touch {file}')]",
    'sin(\'__import__("os").system("touch {file}")\')',
    "__import__('os').system('touch {file}') + 5!",
    "[c for c in ().__class__.__base__.__subclasses__()]",
    'f\'{__import__("os").system("touch {file}")}\'',
    "9**9**9**9",
    "(((9**99)**99)**99)**99",
    "9**(9*9*9*9*9*9*9*9*9)",
    "(lambda: open('{file}', 'w'))()",
)


@pytest.mark.parametrize("program", PROGRAMS)
def test_an_answer_that_is_a_program_is_neither_value_nor_formula(program: str) -> None:
    assert not is_formula(program)
    assert not is_value(program) or "5!" in program, "which Python cannot read"


@pytest.mark.parametrize("text", ["8*(5 - 2) + 0", "x**2/2 + C", "-3*x**(1/3) + exp(2*x)*sin(x)", "24", "(x + 1)**2*(x - 1)"])
def test_formulas_are_judged(text: str) -> None:
    assert is_formula(text)


@pytest.mark.parametrize("text", ["[[0, 1], [-1, 2]]", "['A', 'B']", "1 2 3", "_ Q _\nQ _ _", "ABC", "0 1\n1 0"])
def test_lists_and_what_is_no_python_are_judged(text: str) -> None:
    assert is_value(text)


@pytest.mark.parametrize("dataset", sorted(FROM_FILES))
def test_a_dataset_that_is_read_once_has_the_entries_of_one_that_is_made_anew(dataset: str) -> None:
    package = pytest.importorskip("reasoning_gym", reason="an extra")
    task = parse_task({"name": "reasoning_gym", "dataset": dataset}, PLACE, Path())
    for index in range(2):
        puzzle = REASONING_GYM.generate(task, 0, index, 1)
        key = stream_key("reasoning_gym", dataset, 0, index, 1) % 2**31
        made = package.create_dataset(dataset, **settings_of(dataset, 1, {}), seed=key, size=1)[0]
        assert json.loads(puzzle.entry)["question"] == made["question"]
    assert REASONING_GYM.generate(task, 0, 0, 1) != puzzle


@pytest.mark.parametrize("dataset", sorted(LISTS | FORMULAS))
def test_a_verifier_of_reasoning_gym_runs_no_answer_and_pays_its_gold(dataset: str, tmp_path: Path) -> None:
    pytest.importorskip("reasoning_gym", reason="an extra")
    task = parse_task({"name": "reasoning_gym", "dataset": dataset}, PLACE, Path())
    problems = [REASONING_GYM.generate(task, 0, index, 1) for index in range(8)]
    for problem in problems:
        assert REASONING_GYM.verify(problem, REASONING_GYM.render(problem, task).solution, Verify()).strict
    for program in PROGRAMS:
        answer = program.replace("{file}", str(tmp_path / "made"))
        assert not REASONING_GYM.verify(problems[0], f"<answer>{answer}</answer>", Verify()).answer
    assert not list(tmp_path.iterdir()), "an answer was run"


@pytest.mark.parametrize(
    ("dataset", "config"),
    [
        ("arc_agi", {"board_format_opts": {"alphabet": list("abcdefghij"), "array_brackets": True}}),
        ("rearc", {"board_format_opts": {"col_delimiter": ","}}),
        ("rearc", {}),
        ("time_intervals", {"min_date": "2001-02-03", "max_date": "2001-03-04", "min_time": "06:00"}),
        ("polynomial_equations", {"operators": ["+"]}),
    ],
)
def test_golds_of_a_dataset_with_a_nested_configuration_are_paid(dataset: str, config: dict[str, Any]) -> None:
    pytest.importorskip("reasoning_gym", reason="an extra")
    task = parse_task({"name": "reasoning_gym", "dataset": dataset, "config": config}, PLACE, Path())
    default = settings_of(dataset, 1, {})
    assert {name: type(value) for name, value in settings_of(dataset, 1, config).items()} == {
        name: type(value) for name, value in default.items()
    }
    for index in range(3):
        puzzle = REASONING_GYM.loads(REASONING_GYM.dumps(REASONING_GYM.generate(task, 0, index, 1)))
        gold = REASONING_GYM.render(puzzle, task).solution
        assert REASONING_GYM.verify(puzzle, gold, Verify()).strict
        assert not REASONING_GYM.verify(puzzle, gold.replace("<answer>", "<answer>4, "), Verify()).strict


def test_an_unknown_key_within_a_configuration_is_refused() -> None:
    pytest.importorskip("reasoning_gym", reason="an extra")
    keys = {"name": "reasoning_gym", "dataset": "rearc", "config": {"board_format_opts": {"colour": "red"}}}
    with pytest.raises(UserError, match=r"rearc at op 1 refuses its config: .*colour"):
        REASONING_GYM.generate(parse_task(keys, PLACE, Path()), 0, 0, 1)


def test_what_a_dataset_prints_is_not_shown(capfd: pytest.CaptureFixture[str]) -> None:
    module = pytest.importorskip("reasoning_gym.games.tower_of_hanoi", reason="an extra")
    assert "print(" in Path(module.__file__).read_text()
    task = parse_task({"name": "reasoning_gym", "dataset": "tower_of_hanoi"}, PLACE, Path())
    puzzle = REASONING_GYM.generate(task, 0, 0, 1)
    assert not REASONING_GYM.verify(puzzle, "<answer>Move disk 1 from Peg 1 to Peg 1</answer>", Verify()).answer
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("dataset", sorted(FROM_FILES))
def test_a_dataset_of_files_is_read_once_to_generate_and_to_judge(dataset: str, monkeypatch: pytest.MonkeyPatch) -> None:
    package = pytest.importorskip("reasoning_gym", reason="an extra")
    made, create = list[str](), package.create_dataset

    def counted(name: str, **values: Any) -> Any:
        made.append(name)
        return create(name, **values)

    monkeypatch.setattr(package, "create_dataset", counted)
    reasoning_gym.first_dataset.cache_clear()
    task = parse_task({"name": "reasoning_gym", "dataset": dataset}, PLACE, Path())
    for index in range(3):
        puzzle = REASONING_GYM.generate(task, 0, index, 1)
        REASONING_GYM.verify(puzzle, REASONING_GYM.render(puzzle, task).solution, Verify())
    assert made == [dataset]


def test_entries_of_a_level_do_not_depend_on_the_levels_that_were_drawn_before() -> None:
    package = pytest.importorskip("reasoning_gym", reason="an extra")
    task = parse_task({"name": "reasoning_gym", "dataset": "codeio"}, PLACE, Path())
    for op in (1, 2):
        REASONING_GYM.generate(task, 0, 0, op)
    for op in (1, 2):
        key = stream_key("reasoning_gym", "codeio", 0, 1, op) % 2**31
        made = package.create_dataset("codeio", **settings_of("codeio", op, {}), seed=key, size=1)[0]
        assert json.loads(REASONING_GYM.generate(task, 0, 1, op).entry)["question"] == made["question"]


def test_an_entry_whose_answer_is_empty_is_drawn_again() -> None:
    pytest.importorskip("reasoning_gym", reason="an extra")
    task = parse_task({"name": "reasoning_gym", "dataset": "rubiks_cube"}, PLACE, Path())
    puzzle = REASONING_GYM.generate(task, 0, 13, 1)  # its first scramble is undone by itself
    assert REASONING_GYM.verify(puzzle, REASONING_GYM.render(puzzle, task).solution, Verify()).strict
    with pytest.raises(UserError, match="rubiks_cube at op 2 gives questions without an answer"):
        REASONING_GYM.generate(task, 0, 0, 2)  # a cube of four, which the package does not solve


class Dice(PackageWorld[Any]):
    """Draws from the global generators, and raises at six."""

    def begin(self, problem: dict[str, Any], seed: int) -> str:
        return f"{random.randrange(6)} ♥"

    def act(self, action: str) -> Step:
        drawn = random.randrange(6) + int(np.random.randint(6))
        return Step(str(drawn), 1 / (drawn - 6))


def rolled(seed: int, beside: Dice | None = None) -> list[Any]:
    dice = Dice()
    found: list[Any] = [dice.reset({"ascii": True}, seed)]
    for _ in range(30):
        found.append(dice.step(""))
        if beside:
            beside.step("")
    return found


def test_a_world_that_draws_from_global_generators_has_draws_of_its_own() -> None:
    other = Dice()
    other.reset({"ascii": True}, 5)
    assert rolled(3) == rolled(3, other) != rolled(4)
    assert rolled(3)[0].endswith(" <black heart suit>\n")


def test_what_a_package_raises_ends_the_episode_unpaid() -> None:
    steps = rolled(3)[1:]
    over = next(number for number, step in enumerate(steps) if step.done)
    assert steps[over].info == {"raised": "ZeroDivisionError: division by zero"}
    assert steps[over].reward == 0.0
    assert all(step == Step("", done=True) for step in steps[over + 1 :])


def test_draws_of_a_block_go_on_in_the_next_and_leave_those_outside() -> None:
    random.seed(1)
    expected = [random.random() for _ in range(3)]
    random.seed(2)
    outside = [random.random() for _ in range(2)]
    random.seed(2)
    own, found = Randomness(1), []
    for _ in range(3):
        with own:
            found.append(random.random())
    assert found == expected
    assert [random.random() for _ in range(2)] == outside


@pytest.mark.parametrize(
    ("text", "shown"),
    [("a\tb\x07\n", "a b\n"), ("é – “x”", 'e - "x"'), ("│─┼", "|-+"), ("♠️5", "<black spade suit>5"), ("４", "4"), ("\x7f", "")],
)
def test_text_is_written_in_ascii(text: str, shown: str) -> None:
    assert plain(text) == shown
