"""Games of the policy against itself: a row for each seat, payoffs that add up to nothing, and a baseline for each seat."""

from pathlib import Path
from types import SimpleNamespace

import pytest
import test_rl_loop as loops
import torch
import turn_cases as cases
import world
from killed_rl import payload, run_killed
from pydantic import ValidationError
from rl_cases import batch_of, now_of

from interplay.core.artifact import write_json
from interplay.core.digest import canonical
from interplay.core.execution import Run
from interplay.core.metrics import read
from interplay.core.model import UserError
from interplay.data import corpus, problems, tokenizer
from interplay.data.spec import ProblemsSpec, TokenizerSpec
from interplay.model import folder
from interplay.rl import loop
from interplay.rl.advantage_spec import GroupAdvantage, RoleAdvantage
from interplay.rl.advantages import advantages, update_baselines
from interplay.rl.draw import episode_rewards
from interplay.rl.reward_spec import PayoffReward
from interplay.rl.spec import Method, RLSpec
from interplay.rollout.episodes import play_episodes
from interplay.rollout.spec import SelfPlayEpisode
from interplay.tasks.environments.games import TIC_TAC_TOE, Board
from interplay.tasks.environments.spec import TicTacToe

BOARD = Board("perfect", "XX.OO....", 0)
"""X is to move and wins with 3; O would with 6."""
ROW = cases.row("XX.OO.... X\n", "win", "tic_tac_toe", TIC_TAC_TOE.dumps(BOARD))


def setting(says: cases.Says) -> cases.Setting:
    return cases.setting(says, [ROW])._replace(problem=lambda row: BOARD)


def moves(*by_sample: str) -> cases.Says:
    """Sample n plays the cells of by_sample[n] in turn, whoever moves; a letter is cut by the limit."""

    def says(text: str, sample: int) -> str:
        told = sum(c in "123456789" for c in text.partition("\n")[2])
        move = by_sample[sample][told]
        return move if move.isalpha() else f"{move}$"

    return says


def texts(played: cases.Setting) -> list[str]:
    made = played.rollouts
    return ["".join(map(chr, row[:n])) for row, n in zip(made.tokens.tolist(), made.lengths.tolist(), strict=True)]


def test_each_seat_is_a_row_with_the_others_moves_as_what_it_read() -> None:
    played = play_episodes(SelfPlayEpisode(), setting(moves("783", "763", "1", "x")), cases.asked([ROW], 4))
    assert texts(played) == ["7$8\n3$", "8$", "7$", "6$", "1$", "x"], "a seat that never moved has no row"
    assert played.seats.tolist() == [0, 1, 0, 1, 0, 0]
    assert ["".join(map(chr, p)) for p in played.prompts] == [
        "XX.OO.... X\n", "XX.OO.... O\n7\n", "XX.OO.... X\n", "XX.OO.... O\n7\n", "XX.OO.... X\n", "XX.OO.... X\n",
    ]  # fmt: skip
    assert [[(one.kind, one.text, one.seat) for one in row] for row in played.segments[:2]] == [
        [("context", "XX.OO.... X\n", None), ("action", "7", 0), ("observation", "8\n", 1), ("action", "3", 0)],
        [("context", "XX.OO.... O\n", None), ("context", "7\n", 0), ("action", "8", 1)],
    ]
    assert played.observed[0].tolist() == [False, False, True, True, False, False]
    found = episode_rewards(PayoffReward(), played, [ROW] * 6)
    assert found.rewards.sequence == [1, -1, -1, 1, -1, -1], "three in a row; a blunder; a taken cell; a cut move"
    assert [verdict.error for verdict in found.verdicts] == ["move", "move", "move", "none", "illegal", "illegal"]
    assert [span.value for span in found.rewards.spans[0]] == [0, 1]


def test_a_game_that_is_not_over_pays_nothing_and_no_other_family_plays() -> None:
    played = play_episodes(SelfPlayEpisode(max_turns=2), setting(moves("78")), cases.asked([ROW]))
    assert episode_rewards(PayoffReward(), played, [ROW] * 2).rewards.sequence == [0, 0]
    other = cases.row("x", "1")
    with pytest.raises(UserError, match="the family 'op_dag' of row 0 is no game"):
        play_episodes(SelfPlayEpisode(), cases.setting(moves("1"), [other]), cases.asked([other]))


def test_each_seat_has_a_baseline_that_is_read_before_it_moves_by_hand() -> None:
    rows = [SimpleNamespace(family="kuhn"), SimpleNamespace(family="tic_tac_toe")]
    spec, now = RoleAdvantage(decay=0.9), now_of(rows=rows)
    batch = batch_of([1, -1, 0.5, -1], [0, 0, 0, 1], seats=torch.tensor([0, 1, 0, 0]))
    first = advantages(spec, batch, now)
    assert first[:, 0].tolist() == [1, -1, 0.5, -1], "a baseline starts at 0"
    assert advantages(spec, batch, now).tolist() == first.tolist(), "reading does not move it"
    update_baselines(spec, batch, now)
    assert now.memory.notes["role.baselines"] == pytest.approx(
        {"kuhn.0": 0.9 * 0.1 + 0.1 * 0.5, "kuhn.1": -0.1, "tic_tac_toe.0": -0.1}
    )
    second = advantages(spec, batch, now)[:, 0].tolist()
    assert second == pytest.approx([1 - 0.14, -1 + 0.1, 0.5 - 0.14, -1 + 0.1])
    assert advantages(GroupAdvantage(), batch, now)[3, 0] == 0 != second[3], "GRPO learns nothing from a game alone"


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    results = tmp_path_factory.mktemp("results")
    out, task = results / "problems" / ("a" * 12), TicTacToe()
    spec = ProblemsSpec(task=task, bands={"b": {4: 0.5, 5: 0.5}}, shares={"b": 1.0}, size=40, split="rl", unique=False)
    problems.generate_problems(spec, {}, out, Run())
    write_json(out / "stage.json", {"kind": "problems", "digest": "a" * 12, "spec": canonical(spec), "deps": {}})
    init = results / "pretrain" / ("m" * 12)
    tokenizer.build_tokenizer(TokenizerSpec(task=task), {}, init, Run())
    decoder = folder.init_decoder(world.SHAPE, tokenizer.load(init).get_vocab_size(), 0)
    cases.teach(decoder, corpus.encode_problems(out, init), 40)
    folder.save_decoder(decoder, init / "model", init / "tokenizer")
    return {"init": init, "data.0": out}


def spec_of(steps: int) -> RLSpec:
    method = Method(
        paper="test", episode=SelfPlayEpisode(), advantage=RoleAdvantage(), allocation=loops.FixedAllocation(num_generations=4)
    )
    given = {"reward": PayoffReward(), "mix": [1.0], "prompts_per_step": 6, "max_completion_length": 2}
    return RLSpec(method=method, steps=steps, optimizer=loops.TuneOptimizer(learning_rate=5e-3), **given)


@pytest.mark.slow
def test_a_killed_game_goes_on_with_its_baselines_and_ends_with_the_same_bytes(inputs: dict[str, Path], tmp_path: Path) -> None:
    spec = spec_of(12)
    loop.train_policy(spec, inputs, tmp_path / "whole", loops.HOW)
    run_killed(spec, inputs, tmp_path / "killed", loops.HOW, [(4, 0.02)])
    assert payload(tmp_path / "killed") == payload(tmp_path / "whole")
    lines = read(tmp_path / "whole")
    assert all(abs(line["kl_old"]) < 1e-6 for line in lines)
    assert max(line["turns"] for line in lines) > 1, "the expert's games have taught the form of a move"
    assert {line["strict"] > 0 for line in lines} == {True}


@pytest.mark.parametrize(
    ("method", "reward", "message"),
    [
        ({"advantage": {"name": "role"}}, "payoff", "role needs .*; write method.episode = self_play"),
        ({"episode": {"name": "self_play"}}, "outcome", "self_play needs .*; write reward = payoff"),
        (
            {"episode": {"name": "self_play"}, "allocation": {"name": "xrpo"}},
            "payoff",
            "self_play needs .*; write method.allocation = fixed",
        ),
    ],
)
def test_what_does_not_go_with_a_game_is_refused_in_one_line(method: dict[str, object], reward: str, message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        RLSpec.model_validate({"method": {"paper": "p", **method}, "reward": {"name": reward}, "mix": [1.0], "steps": 1})
