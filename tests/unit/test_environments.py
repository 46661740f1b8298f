"""Text environments: their gold passes, their tools evaluate nothing, and their games are what brute force says."""

import ast
import itertools
import math
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import turn_cases as cases
from hypothesis import given, strategies as st
from pydantic import ValidationError

from interplay.core.artifact import write_json
from interplay.core.digest import canonical
from interplay.core.execution import Run
from interplay.core.model import UserError
from interplay.data import corpus, problems, sets, tokenizer
from interplay.data.spec import ProblemsSpec, TokenizerSpec
from interplay.data.trajectory import transcript_of
from interplay.rollout.episodes import play_episodes
from interplay.rollout.spec import EnvironmentEpisode
from interplay.tasks.environments import games, tools
from interplay.tasks.environments.spec import PACKAGED, BiosSearch, Calculator, Kuhn, SelfSearch, TicTacToe, TwentyQuestions
from interplay.tasks.facts.spec import Bios
from interplay.tasks.families import families_with, task_family
from interplay.tasks.family import Environment, Position, Step
from interplay.tasks.spec import Verify
from interplay.tasks.transcripts import MARK, join_turns, judge_transcript, observations, policy_turns, replies_match

TASKS = {
    "calculator": Calculator(),
    "bios_search": BiosSearch(bios=Bios(level="in_context", people=20, distractors=(8, 12))),
    "self_search": SelfSearch(bios=Bios(level="by_heart", people=20)),
    "twenty_questions": TwentyQuestions(),
    "tic_tac_toe": TicTacToe(),
    "kuhn": Kuhn(),
}
RANDOM = TicTacToe(opponent="random")


def made(name: str, index: int, op: int | None = None) -> tuple[Any, Any, Any]:
    task, module = TASKS[name], task_family(TASKS[name])
    low, high = task.ops()
    return task, module, module.generate(task, 1, index, op or low + index % (min(high, low + 6) - low + 1))


def test_every_environment_is_tried() -> None:
    elsewhere = {*PACKAGED, "sql_questions", "with_tools"} - {"reasoning_gym"}  # tested in test_adapters and test_tools
    assert set(families_with(Environment)) == {*TASKS, *elsewhere}


@pytest.mark.parametrize("name", TASKS)
def test_gold_transcripts_are_strictly_right_and_a_solver_that_may_ask_agrees(name: str) -> None:
    for index in range(25):
        task, module, problem = made(name, index)
        prompt, solution, answer = module.render(problem, task)
        assert module.verify(problem, solution, Verify()).strict
        assert module.answer(task, problem, prompt) == answer
        assert module.loads(module.dumps(problem)) == problem == module.generate(task, 1, index, problem_op(name, index))
        assert set(prompt + solution) - {MARK} <= set(module.alphabet(task))
        for turn in (["?"], ["calc(1/0)"], ["look(nobody)"], ["ask(red)"]):
            assert set(module.reply(problem, turn).text) <= set(module.alphabet(task))


def problem_op(name: str, index: int) -> int:
    low, high = TASKS[name].ops()
    return low + index % (min(high, low + 6) - low + 1)


@pytest.mark.parametrize("name", TASKS)
@given(text=st.text(alphabet=st.sampled_from("calok()sbetp123456789+*{}\\boxd \x1e\n"), max_size=60))
def test_no_text_of_a_model_breaks_a_judge_or_an_environment(name: str, text: str) -> None:
    _, module, problem = made(name, 3)
    verdict = module.verify(problem, text, Verify())
    assert 0 <= verdict.score <= 1
    assert module.reply(problem, policy_turns(text)) == module.reply(problem, policy_turns(text))


@pytest.mark.parametrize("name", ["calculator", "bios_search", "twenty_questions", "kuhn"])
def test_a_transcript_with_a_reply_that_was_none_is_not_right(name: str) -> None:
    for index in range(12):
        task, module, problem = made(name, index)
        solution = module.render(problem, task).solution
        if observations(solution):
            false = join_turns(policy_turns(solution), ["0\n", *observations(solution)[1:]])
            assert module.verify(problem, false, Verify()).error == "made_up"


def test_turns_and_replies_make_a_transcript_and_come_out_of_it_again() -> None:
    assert join_turns(["a", "b"], ["x"]) == f"a{MARK}x{MARK}b"
    assert (policy_turns("a\x1ex\x1eb"), observations("a\x1ex\x1eb")) == (["a", "b"], ["x"])
    with pytest.raises(ValueError, match="zip"):
        join_turns(["a"], ["x", "y"])


def test_a_transcript_is_worth_its_answer_and_what_was_found_out() -> None:
    def reply(turns: list[str]) -> Step:
        return Step("x", done=turns[-1] == "over")

    assert replies_match("a\x1ex\x1eb", reply)
    assert not replies_match("over\x1ex\x1eb", reply)
    errors = [
        judge_transcript(text, reply, "7", lambda turns: 0.5 * len(turns)).error
        for text in ("a", r"\boxed{7}", "a\x1ex\x1e\\boxed{7}")
    ]
    assert errors == ["truncated", "process", "none"]
    assert judge_transcript("a\x1ey\x1e\\boxed{7}", reply, "7").error == "made_up"
    assert judge_transcript("a\x1ex\x1e\\boxed{8}", reply, "7")[:4] == (False, False, 0.0, "answer")


# --- calculator ---


def oracle(text: str) -> int:
    """By Python's parser, of gold expressions alone."""

    def of(node: ast.AST) -> int:
        if isinstance(node, ast.BinOp):
            a, b = of(node.left), of(node.right)
            return a + b if isinstance(node.op, ast.Add) else a - b if isinstance(node.op, ast.Sub) else a * b
        if isinstance(node, ast.UnaryOp):
            return -of(node.operand)
        assert isinstance(node, ast.Constant)
        return int(node.value)

    return of(ast.parse(text, mode="eval").body)


def expressions() -> st.SearchStrategy[str]:
    numbers = st.integers(0, 99).map(str)
    return st.recursive(
        numbers,
        lambda inner: st.one_of(
            st.tuples(inner, st.sampled_from("+-*"), inner).map("".join), inner.map("({})".format), inner.map("-{}".format)
        ),
        max_leaves=6,
    )


@given(expressions())
def test_the_tools_parser_says_what_pythons_does(text: str) -> None:
    assert tools.value(text) == oracle(text)


@pytest.mark.parametrize(
    "text",
    ["", "1+", "(1", "1)", "2**3", "__import__('os')", "1/2", "1 + 1", "9" * 19, "(" * 200, "9" * 18 + "*9", "*1", "()", "1 2"],
)
def test_the_tool_refuses_whatever_else_it_is_given(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        tools.value(text)
    assert tools.CALCULATOR.reply(tools.Expression("calculator", "1+1", False), [f"calc({text})"]) == Step("error\n", tool="calc")


def test_the_tool_takes_one_operator_at_a_time_unless_told_otherwise() -> None:
    one, any_of_them = (tools.Expression("calculator", "1+2*3", single) for single in (True, False))
    assert [tools.CALCULATOR.reply(one, [f"calc({t})"]).text for t in ("2*3", "-7--3", "1+2*3", "5")] == [
        "6\n",
        "-4\n",
        "error\n",
        "error\n",
    ]
    assert tools.CALCULATOR.reply(any_of_them, ["calc(1+2*3)"]).text == "7\n"
    assert tools.CALCULATOR.reply(one, ["\\boxed{7}"]).done


# --- bios search ---


def test_search_tells_what_is_known_of_a_person_and_nothing_else() -> None:
    _, module, problem = made("bios_search", 2, 3)
    for name in {fact.subject for fact in problem.context}:
        text = module.reply(problem, [f"look({name})"]).text
        facts = [fact for fact in problem.context if fact.subject == name]
        assert all(f"{fact.relation} is {fact.object}." in text for fact in facts)
        assert text.count(" is ") == len(facts)
    assert module.reply(problem, ["look(Nobody)"]).text == "nothing\n"
    lazy = f"\\boxed{{{problem.answer}}}"
    assert module.verify(problem, lazy, Verify())[:4] == (False, True, 0.0, "process"), "right, and nobody was looked up"


def test_search_needs_people_whose_facts_stand_in_the_context() -> None:
    with pytest.raises(ValidationError, match="must be in_context"):
        BiosSearch(bios=Bios(level="iid"))


# --- twenty questions ---


@given(st.sets(st.integers(0, 15), min_size=2, max_size=7))
def test_the_depth_is_the_least_of_all_decision_trees(kinds: set[int]) -> None:
    def best(left: frozenset[int]) -> int:
        if len(left) == 1:
            return 0
        halves = [
            (frozenset(k for k in left if k >> bit & 1), frozenset(k for k in left if not k >> bit & 1)) for bit in range(4)
        ]
        return min(1 + max(best(a), best(b)) for a, b in halves if a and b)

    found = tools.depth(tuple(sorted(kinds)), 4)
    assert found == best(frozenset(kinds)) >= math.ceil(math.log2(len(kinds)))
    objects = tuple((f"N{kind}", kind) for kind in sorted(kinds))
    asked = [len(tools.ask_expert(tools.Table("q", 4, objects, i))) - 1 for i in range(len(objects))]
    assert max(asked) == found, "the expert is that tree"


def test_a_guess_is_right_and_not_strict() -> None:
    problem = tools.Table("q", 2, (("A", 0), ("B", 1), ("C", 2)), 1)
    verify: Callable[[str], Any] = lambda text: tools.TWENTY_QUESTIONS.verify(problem, text, Verify())  # noqa: E731
    assert verify("\\boxed{B}")[:4] == (False, True, 0.0, "process")
    assert verify("ask(red)\x1eyes\n\x1e\\boxed{B}").strict
    assert verify("ask(red)\x1eyes\n\x1eask(big)\x1eno\n\x1eask(red)\x1eyes\n\x1e\\boxed{B}").score == pytest.approx(2 / 3)


# --- tic-tac-toe ---


def brute(board: str, me: str) -> int:
    """Minimax without a memory, straight from the rules, for the mark `me` to move."""
    other = "O" if me == "X" else "X"
    rows = [board[i : i + 3] for i in (0, 3, 6)] + [board[i::3] for i in range(3)] + [board[::4], board[2:7:2]]
    if other * 3 in rows:
        return -1
    free = [i for i in range(9) if board[i] == "."]
    return max((-brute(board[:i] + me + board[i + 1 :], other) for i in free), default=0)


@given(st.integers(0, 10**6), st.integers(1, 6))
def test_a_position_is_worth_what_minimax_without_a_memory_says(index: int, op: int) -> None:
    board = games.generate_board(TicTacToe(), 0, index, op).board
    assert board.count(".") == op
    assert abs(board.count("X") - board.count("O")) <= 1
    assert games.minimax(board) == brute(board, games.mover_mark(board))


def test_the_empty_board_is_a_draw_and_nobody_beats_the_perfect_opponent() -> None:
    assert games.minimax("." * 9) == 0
    draw = np.random.default_rng(0)
    for index in range(60):
        problem = games.generate_board(TicTacToe(), 0, index, 2 + index % 8)
        turns: list[str] = []
        while games.TIC_TAC_TOE.position(problem, moves := games.TIC_TAC_TOE_RULES.against(problem, turns)[0]).mover >= 0:
            board = games._board_after(problem, moves)
            turns.append(str(draw.choice(games.empty_cells(board)) + 1))
        payoff = games.TIC_TAC_TOE.position(problem, moves).payoff
        assert payoff <= games.minimax(problem.board)


def test_a_move_on_a_taken_cell_loses_at_once() -> None:
    problem = games.Board("perfect", "X...O....", 0)
    assert games.TIC_TAC_TOE.position(problem, ["1"]) == Position(-1, -1.0, False)
    assert games.TIC_TAC_TOE.position(problem, ["2", "5"]) == Position(-1, 1.0, False)
    verdict = games.TIC_TAC_TOE.verify(problem, "1", Verify())
    assert verdict[:4] == (False, False, 0.0, "illegal")
    assert games.TIC_TAC_TOE.judge(problem, ["2", "5"], 0).answer
    assert games.TIC_TAC_TOE.judge(problem, ["2", "5"], 1).error == "illegal"


def test_the_random_opponent_moves_anywhere_and_always_the_same() -> None:
    problem = games.generate_board(RANDOM, 0, 4, 9)
    assert {games.TIC_TAC_TOE_RULES.scripted(problem._replace(seed=n), ["1"]) for n in range(80)} == set("23456789")
    assert games.TIC_TAC_TOE_RULES.scripted(problem, ["1"]) == games.TIC_TAC_TOE_RULES.scripted(problem, ["1"])


# --- Kuhn poker ---

Plan = dict[tuple[str, tuple[str, ...]], Fraction]
"""(card, moves so far) -> chance of a bet."""


def expected(first: Plan, second: Plan) -> Fraction:
    """Chips of seat 0 over the six deals."""

    def walk(cards: tuple[str, str], moves: tuple[str, ...]) -> Fraction:
        won = games.chips_won(cards, moves)
        if won is not None:
            return Fraction(won)
        seat = len(moves) % 2
        chance = (first, second)[seat][cards[seat], moves]
        return chance * walk(cards, (*moves, "bet")) + (1 - chance) * walk(cards, (*moves, "pass"))

    return sum((walk(cards, ()) for cards in games.DEALS), Fraction(0)) / 6


def equilibrium(seat: int, alpha: Fraction) -> Plan:
    return {(card, moves): games.bet_chance(card, moves, alpha) for card in "JQK" for moves in SPOTS[seat]}


SPOTS: tuple[list[tuple[str, ...]], ...] = ([(), ("pass", "bet")], [("bet",), ("pass",)])


def pure(seat: int) -> list[Plan]:
    spots = [(card, moves) for card in "JQK" for moves in SPOTS[seat]]
    return [dict(zip(spots, map(Fraction, choice), strict=True)) for choice in itertools.product((0, 1), repeat=6)]


@pytest.mark.parametrize("alpha", [Fraction(0), Fraction(1, 7), Fraction(1, 3)])
def test_no_pure_strategy_beats_the_equilibrium_whose_value_is_minus_one_eighteenth(alpha: Fraction) -> None:
    first, second = equilibrium(0, alpha), equilibrium(1, alpha)
    assert expected(first, second) == Fraction(-1, 18)
    assert max(expected(plan, second) for plan in pure(0)) == Fraction(-1, 18)
    assert min(expected(first, plan) for plan in pure(1)) == Fraction(-1, 18)


def test_what_no_equilibrium_does_is_not_sound() -> None:
    def sound(card: str, *moves: str) -> bool:
        cards = (card, "Q" if card != "Q" else "K")
        seated = cards if len(moves) % 2 else cards[::-1]
        return games.KUHN_RULES.sound(games.Deal("kuhn", seated, 0, 0), list(moves))

    assert not sound("Q", "bet")
    assert not sound("J", "bet", "bet")
    assert not sound("K", "bet", "pass")
    assert sound("J", "bet")
    assert sound("Q", "bet", "bet")
    assert sound("Q", "bet", "pass")


def test_the_opponents_draws_follow_the_equilibrium() -> None:
    problem = games.Deal("kuhn", ("K", "Q"), 0, 0)
    calls = np.mean([games.KUHN_RULES.scripted(problem._replace(draw=n), ["bet"]) == "bet" for n in range(3000)])
    assert calls == pytest.approx(1 / 3, abs=0.03)


# --- played, generated and taught ---


def test_an_episode_goes_turn_by_turn_with_the_environment_until_it_is_over() -> None:
    problem = tools.Expression("calculator", "(3+4)*2", True)
    row = cases.row("(3+4)*2?\n", "14", "calculator", tools.CALCULATOR.dumps(problem))

    def says(text: str, sample: int) -> str:
        observed = text.split("\n")[1:]
        steps = ["calc(3+4)$", "calc(7*2)$", "\\boxed{14}$"] if sample == 0 else ["calc(3)$"] * 9
        return steps[len(observed) - 1]

    setting = cases.setting(says, [row])._replace(
        verify=lambda of, text: tools.CALCULATOR.verify(problem, text, Verify()), problem=lambda of: problem
    )
    played = play_episodes(EnvironmentEpisode(max_turns=4), setting, cases.asked([row], 2))
    assert [[t.verdict and t.verdict.error for t in turns] for turns in played.turns] == [
        [None, None, "none"], [None, None, None, "truncated"],
    ]  # fmt: skip
    assert transcript_of(played.segments[0]) == tools.CALCULATOR.render(problem, Calculator()).solution
    assert [one.tool for one in played.segments[0]] == ["calc"] * 4 + [""], "of a call and of what it gives"
    text = "".join(map(chr, played.rollouts.tokens[0, : played.rollouts.lengths[0]].tolist()))
    assert text == "calc(3+4)$7\ncalc(7*2)$14\n\\boxed{14}$"
    with pytest.raises(UserError, match="the family 'op_dag' of row 0 is no environment; known: calculator"):
        play_episodes(EnvironmentEpisode(), cases.setting(says, [cases.row("x", "1")]), cases.asked([cases.row("x", "1")]))


@pytest.mark.parametrize("name", TASKS)
def test_sets_are_generated_and_taught_turn_by_turn(name: str, tmp_path: Path) -> None:
    low, high = TASKS[name].ops()
    ops = {op: 1 / 2 for op in (min(low + 2, high), min(low + 3, high))} if high > low else {low: 1.0}
    spec = ProblemsSpec(task=TASKS[name], bands={"b": ops}, shares={"b": 1.0}, size=8, split="train", unique=False)
    problems.generate_problems(spec, {}, tmp_path, Run())
    write_json(tmp_path / "stage.json", {"kind": "problems", "digest": "a" * 12, "spec": canonical(spec), "deps": {}})
    tokenizer.build_tokenizer(TokenizerSpec(task=TASKS[name]), {}, tmp_path / "tok", Run())
    rows = sets.load_pool([tmp_path]).rows
    encoded = corpus.encode_problems(tmp_path, tmp_path / "tok")
    text = tokenizer.load(tmp_path / "tok")
    assert len(encoded.lengths) == sum(len(policy_turns(row.solution)) for row in rows)
    place = number = 0
    for row in rows:
        seen: list[int] = text.encode(row.prompt).ids
        for turn, reply in itertools.zip_longest(policy_turns(row.solution), observations(row.solution)):
            ids = encoded.tokens[place : place + encoded.lengths[number]].tolist()
            own = text.encode(turn).ids
            assert ids == [*seen, *own, 1]
            assert encoded.prompts[number] == len(seen), "what was read and what was written before is no part of the lesson"
            place, number = place + len(ids), number + 1
            seen = [*ids, *(text.encode(reply).ids if reply else [])]


def test_more_names_than_can_be_invented_are_refused_before_they_are_drawn_for_ever() -> None:
    with pytest.raises(ValidationError, match="less than or equal to 250000"):
        TwentyQuestions(names=400_000)
