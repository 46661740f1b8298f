"""Tasks as a taskset of verifiers: it is loaded by its id, and an episode is judged as it is here."""

import asyncio
from typing import Any

import pytest

vf = pytest.importorskip("verifiers.v1", reason="in an environment of its own")

from interplay.data import sets  # noqa: E402
from interplay.tasks.families import judge_family  # noqa: E402
from interplay.tasks.family import Environment  # noqa: E402
from interplay.tasks.spec import Verify  # noqa: E402
from interplay.tasks.transcripts import policy_turns  # noqa: E402
from interplay.tasks.verdict import Row  # noqa: E402


class Said:
    """A player whose turns are given, in place of a model behind an endpoint; it ends when it has no more."""

    def __init__(self, turns: list[str]) -> None:
        self.left, self.read, self.rewards, self.metrics = list(turns), list[str](), dict[str, float](), dict[str, float]()
        self.player = self.trace = self

    def interaction(self, task: Any) -> "Said":
        return self

    async def __aenter__(self) -> "Said":
        return self

    async def __aexit__(self, *raised: object) -> None:
        return None

    async def turn(self, message: str = "") -> Any:
        self.read.append(message)
        return vf.Segment([], self.left.pop(0)) if self.left else vf.Segment([], terminated=True)

    def record_reward(self, name: str, value: float, weight: float = 1.0) -> None:
        self.rewards[name] = value * weight

    def record_metric(self, name: str, value: float) -> None:
        self.metrics[name] = value


@pytest.mark.parametrize("task", ["calculator", "op_dag", "tic_tac_toe"])
def test_a_taskset_is_loaded_by_its_id_and_its_episodes_are_judged(task: str) -> None:
    from verifiers.v1.utils import loaders

    given = {"taskset": {"id": "interplay-tasks", "problems": {"name": task}, "op": 3, "size": 4}}
    env = loaders.load_environment(loaders.resolve_env_config({**given, "player": {"harness": {"id": "null"}}}))
    tasks = list(env.taskset)
    assert len({one.data.prompt for one in tasks}) > 1
    for one in tasks:
        row = Row(**one.data.row)
        turns = policy_turns(row.solution) if isinstance(judge_family(row.family), Environment) else [row.solution]
        player = Said(turns)
        asyncio.run(env.run(one, player))
        assert player.rewards == {"answer": float(sets.judge_completion(Verify(), row, row.solution).answer)}
        assert player.metrics["turns"] == len(turns)
        silent = Said([])
        asyncio.run(env.run(one, silent))
        assert silent.rewards == {"answer": 0.0}
