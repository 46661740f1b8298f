"""What the policy sees at each turn: the history, the state of the environment, or what it wrote of both; and which of the tokens
that it wrote are learnt from."""

from pathlib import Path
from typing import Any

import pytest
import test_rl_loop as loops
import test_rl_self_play as games
import turn_cases as cases
from pydantic import ValidationError

from interplay.core.execution import Run
from interplay.core.metrics import read
from interplay.core.model import UserError
from interplay.evaluate import sampling
from interplay.evaluate.spec import EvaluateSpec
from interplay.rl import loop
from interplay.rl.draw import episode_rewards
from interplay.rl.reward_spec import OutcomeReward
from interplay.rl.spec import RLSpec
from interplay.rollout.episodes import play_episodes
from interplay.rollout.spec import EnvironmentEpisode, ReadingEpisode, RetryEpisode
from interplay.rollout.turns import Played
from interplay.tasks.environments import tools
from interplay.tasks.environments.games import TIC_TAC_TOE, Board
from interplay.tasks.spec import Verify
from interplay.tasks.transcripts import UNANSWERED

ROW = cases.row("p|", "4")


def chars(rows: Any) -> list[str]:
    return ["".join(map(chr, row)) for row in rows]


def rows_of(played: Played) -> list[tuple[str, str, str]]:
    """Of each row what it follows, what it holds, and which of that was written by the policy and is learnt from."""
    made = played.rollouts
    texts = [row[:n] for row, n in zip(made.tokens.tolist(), made.lengths.tolist(), strict=True)]
    marks = ["".join(".o"[int(o)] for o in row[: len(text)]) for row, text in zip(played.observed.tolist(), texts, strict=True)]
    return list(zip(chars(played.prompts), chars(texts), marks, strict=True))


def counts(text: str, sample: int) -> str:
    """A note says how long its context was; a try is always wrong."""
    return f"n{len(text)}$" if text.endswith("S:") else "x$"


def test_a_note_takes_the_place_of_the_history_and_is_learnt_in_the_part_that_it_sums_up() -> None:
    spec = RetryEpisode(max_turns=4, feedback="?", context={"name": "summary", "every": 2, "ask": "S:", "shown": "({summary})"})
    setting = cases.setting(counts, [ROW])
    played = play_episodes(spec, setting, cases.asked([ROW]))
    assert rows_of(played) == [("p|", "x$?x$?S:n10$", "..o..ooo...."), ("p|(n10)", "x$?x$", "..o..")]
    contexts = chars(request.prompt for requests, _ in setting.engine.asked for request in requests)
    assert contexts == ["p|", "p|x$?", "p|x$?x$?S:", "p|(n10)", "p|(n10)x$?"], "what is learnt is what was sampled from"
    assert played.excluded.tolist() == [True, False], "the episode counts once"
    assert [[(t.number, t.end > 0) for t in turns] for turns in played.turns] == [
        [(0, True), (1, True), (2, True), (3, False), (4, False)],
        [(0, False), (1, False), (2, False), (3, True), (4, True)],
    ]
    assert [turn.verdict is None for turn in played.turns[0]] == [False, False, True, False, False], "a note answers nothing"
    assert len({seed for _, seed in setting.engine.asked}) == 5, "no turn or note repeats the noise of another"
    assert episode_rewards(OutcomeReward(), played, [ROW] * 2).rewards.sequence == [0, 0]


def test_notes_that_are_not_trained_bear_no_loss() -> None:
    context = {"name": "summary", "every": 1, "ask": "S:", "shown": "({summary})", "trained": False}
    played = play_episodes(
        RetryEpisode(max_turns=2, feedback="?", context=context), cases.setting(counts, [ROW]), cases.asked([ROW])
    )
    assert rows_of(played) == [("p|", "x$?S:n7$", "..oooooo"), ("p|(n7)", "x$", "..")]
    assert played.rollouts.logprobs[0].tolist() == [-1, -1, 0, 0, 0, 0, 0, 0]
    assert [turn.end for turn in played.turns[0]] == [2, 0, 0]


def calls(text: str, sample: int) -> str:
    if text.endswith("S:"):
        return "3+4 is 7$"
    return "\\boxed{7}$" if "is 7" in text else "calc(3+4)$"


def test_a_note_goes_to_no_environment_and_is_no_part_of_what_is_judged() -> None:
    problem = tools.Expression("calculator", "3+4", True)
    row = cases.row("3+4=", "7", "calculator", tools.CALCULATOR.dumps(problem))
    seen: list[str] = []

    def verify(of: Any, text: str) -> Any:
        seen.append(text)
        return tools.CALCULATOR.verify(problem, text, Verify())

    setting = cases.setting(calls, [row])._replace(verify=verify, problem=lambda _: problem)
    context = {"name": "summary", "every": 1, "ask": "S:"}
    played = play_episodes(EnvironmentEpisode(max_turns=3, context=context), setting, cases.asked([row]))
    assert seen == ["calc(3+4)\x1e7\n\x1e\\boxed{7}"]
    assert [turns[-1].verdict.strict for turns in played.turns] == [True, True]
    assert [(one.kind, one.text, one.call) for one in played.segments[-1]] == [
        ("action", "calc(3+4)", None), ("observation", "7\n", None), ("observation", "S:", None), ("action", "3+4 is 7", ""),
        ("context", "3+4 is 7\n", None), ("action", "\\boxed{7}", None),
    ]  # fmt: skip
    assert chars(played.prompts) == ["3+4=", "3+4=3+4 is 7\n"]


def test_the_state_of_the_environment_takes_the_place_of_the_moves() -> None:
    board = Board("perfect", "X...O....", 0)
    row = cases.row("X...O.... X\n", "draw", "tic_tac_toe", TIC_TAC_TOE.dumps(board))
    setting = cases.setting(lambda text, sample: f"{text.index('.') + 1}$", [row])._replace(problem=lambda _: board)
    played = play_episodes(EnvironmentEpisode(max_turns=5, context={"name": "state"}), setting, cases.asked([row]))
    assert chars(played.prompts)[:2] == ["X...O.... X\n", "XXO.O.... X\n"], "the board after the opponent's reply"
    assert all(prompt.endswith(" X\n") for prompt in chars(played.prompts))
    assert all(not row.any() for row in played.observed), "a row for each turn, which holds nothing that was read"
    assert played.excluded.tolist() == [True] * (len(played.prompts) - 1) + [False]
    problem = tools.Expression("calculator", "3+4", True)
    other = cases.row("3+4=", "7", "calculator", tools.CALCULATOR.dumps(problem))
    spec = EnvironmentEpisode(context={"name": "state"})
    with pytest.raises(UserError, match="the environment has no text of its state; give its class"):
        play_episodes(spec, cases.setting(calls, [other])._replace(problem=lambda _: problem), cases.asked([other]))


def test_the_state_is_shown_also_before_the_first_call_that_can_be_read() -> None:
    board = Board("perfect", "X...O....", 0)
    row = cases.row("X...O.... X\n", "draw", "tic_tac_toe", TIC_TAC_TOE.dumps(board))
    turns = iter(["<call>", "<call>2</call>", "<call>"])
    setting = cases.setting(lambda text, sample: f"{next(turns)}$", [row])._replace(problem=lambda _: board)
    spec = EnvironmentEpisode(max_turns=3, context={"name": "state"}, action={"form": "tag"})
    played = play_episodes(spec, setting, cases.asked([row]))
    assert chars(played.prompts) == ["X...O.... X\n", "X...O.... X\n", "XXO.O.... X\n"]


def test_an_episode_without_a_call_that_can_be_read_is_unanswered_in_the_state_as_elsewhere() -> None:
    board = Board("perfect", "X...O....", 0)
    row = cases.row("X...O.... X\n", "draw", "tic_tac_toe", TIC_TAC_TOE.dumps(board))
    setting = cases.setting(lambda text, sample: "<call>$", [row])._replace(
        problem=lambda _: board, verify=lambda _, text: TIC_TAC_TOE.verify(board, text, Verify())
    )
    for context in ("full", "state"):
        spec = EnvironmentEpisode(max_turns=2, context={"name": context}, action={"form": "tag"})
        played = play_episodes(spec, setting, cases.asked([row]))
        assert {turns[-1].verdict for turns in played.turns or ()} == {UNANSWERED}


LONG = cases.row("aaaabbbbcc?who", "cc")


def reads(text: str, sample: int) -> str:
    """A note keeps the last two characters of what was read; the answer is the note."""
    return text[-2:] + "$"


def test_a_long_prompt_is_read_in_chunks_with_a_note_that_is_rewritten() -> None:
    spec = ReadingEpisode(chunk=4, divide="?", read="{question}[{note}]{chunk}", answered="{question}|{note}", note="-")
    setting = cases.setting(reads, [LONG])
    played = play_episodes(spec, setting, cases.asked([LONG]))
    assert rows_of(played) == [
        ("?who[-]aaaa", "aa$", "..."), ("?who[aa]bbbb", "bb$", "..."), ("?who[bb]cc", "cc$", "..."), ("?who|cc", "cc$", "..."),
    ]  # fmt: skip
    assert played.excluded.tolist() == [True, True, True, False]
    assert episode_rewards(OutcomeReward(), played, [LONG] * 4).rewards.sequence == [1, 1, 1, 1], (
        "every turn has the answer's reward"
    )
    assert len({seed for _, seed in setting.engine.asked}) == 4
    answers = play_episodes(spec.model_copy(update={"trained": False}), cases.setting(reads, [LONG]), cases.asked([LONG]))
    assert rows_of(answers) == [("?who|cc", "cc$", "...")], "the answer alone is learnt from"


def test_prompts_of_other_lengths_are_read_side_by_side() -> None:
    rows = [LONG, cases.row("zz?who", "zz")]
    spec = ReadingEpisode(chunk=4, divide="?", answered="{question}|{note}")
    played = play_episodes(spec, cases.setting(reads, rows), cases.asked(rows, 2))
    assert played.rollouts.request.tolist() == [0] * 8 + [1] * 4
    assert (
        episode_rewards(OutcomeReward(), played, [rows[i] for i in played.rollouts.request.tolist()]).rewards.sequence
        == [1.0] * 12
    )


def test_what_cannot_be_read_is_refused_in_one_line() -> None:
    for spec, message in (
        (ReadingEpisode(divide="!"), "episode.divide = '!': the prompt of row 0 does not hold it"),
        (
            ReadingEpisode(divide="?", chunk=1, max_turns=5),
            "episode.max_turns = 5: row 0 has 10 chunks; write 11, or a larger chunk",
        ),
    ):
        with pytest.raises(UserError, match=message.replace("?", r"\?")):
            play_episodes(spec, cases.setting(reads, [LONG]), cases.asked([LONG]))


@pytest.mark.parametrize(
    ("episode", "advantage", "message"),
    [
        ({"name": "retry", "window": 2, "context": {"name": "summary"}}, "group", "window: does not go with context summary"),
        ({"name": "retry", "context": {"name": "summary", "shown": "x"}}, "group", "must hold {summary} once"),
        ({"name": "retry", "context": {"name": "state"}}, "group", "state is an environment's, and retry has none"),
        ({"name": "reading", "divide": "?", "read": "{note}"}, "group", "must hold {chunk} once"),
        ({"name": "environment", "context": {"name": "summary"}}, "igpo", "igpo does not go with"),
        ({"name": "reading", "divide": "?"}, "igpo", "igpo does not go with"),
    ],
)
def test_contexts_that_do_not_go_together_are_refused(episode: Any, advantage: str, message: str) -> None:
    method = {"paper": "p", "episode": episode, "advantage": {"name": advantage}}
    with pytest.raises(ValidationError, match=message):
        RLSpec.model_validate({"method": method, "mix": [1.0], "steps": 1})


# --- runs ---

inputs = games.inputs


@pytest.mark.parametrize("context", [{"name": "state"}, {"name": "summary", "every": 1, "ask": "\n", "trained": False}])
def test_a_run_learns_from_what_it_sampled_in_a_context_that_is_cut(
    context: Any, inputs: dict[str, Path], tmp_path: Path
) -> None:
    episode = {"name": "environment", "max_turns": 4, "context": context}
    method = {"paper": "p", "episode": episode, "allocation": {"name": "fixed", "num_generations": 4}}
    spec = RLSpec.model_validate(
        {
            "method": method, "reward": {"name": "outcome"}, "mix": [1.0], "steps": 2, "prompts_per_step": 4,
            "max_completion_length": 3, "temperature": 1.0,
        }
    )  # fmt: skip
    loop.train_policy(spec, inputs, tmp_path, loops.HOW)
    lines = read(tmp_path)
    assert all(abs(line["kl_old"]) < 1e-6 for line in lines), "rows are scored behind what they were sampled from"
    assert max(line["turns"] for line in lines) > 1
    (tmp_path / "e").mkdir()
    evaluated = EvaluateSpec.model_validate({"episode": episode, "num_samples": 2, "max_completion_length": 3})
    found = sampling.evaluate_model(evaluated, {"model": inputs["init"], "data": inputs["data.0"]}, tmp_path / "e", Run())
    assert found["all"]["n"] == 40


BACKWARDS = """
from interplay.rollout.request import Rollouts
from interplay.rollout.turns import Played

def backwards(setting, asked):
    made = setting.engine.generate(asked, setting.sampling)
    return Played(Rollouts(*(value.flip(0) for value in made)))
"""


def test_an_episode_of_the_users_own_that_returns_rows_in_another_order_is_refused(
    inputs: dict[str, Path], tmp_path: Path
) -> None:
    own = {"name": "custom", "function": "mine.py:backwards", "source": BACKWARDS}
    spec = EvaluateSpec.model_validate({"episode": own, "num_samples": 2, "max_completion_length": 3})
    with pytest.raises(UserError, match="must give one row that counts for each sample, in the order of what was asked for"):
        sampling.evaluate_model(spec, {"model": inputs["init"], "data": inputs["data.0"]}, tmp_path, Run())
