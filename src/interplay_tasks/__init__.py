"""Tasks of Interplay as a taskset of verifiers (package verifiers 0.4), by the id `interplay-tasks`, and the environment that
plays them: one seat, `player`, judged by the task's own verifier.

    vf-eval interplay-tasks --env.taskset.problems.name op_dag --env.taskset.op 4

verifiers pins other versions than Interplay's engines: install both in an environment of their own (docs/guide/adapters.md)."""

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal

import verifiers.v1 as vf

from interplay.core.execution import Run
from interplay.core.model import KeyPlace
from interplay.data import problems, sets
from interplay.data.spec import ProblemsSpec
from interplay.study.context import parse_task
from interplay.tasks.families import judge_family
from interplay.tasks.family import Environment
from interplay.tasks.spec import Verify
from interplay.tasks.transcripts import join_turns
from interplay.tasks.verdict import Row

__all__ = ["InterplayEnv", "InterplayTaskset"]


class InterplayConfig(vf.TasksetConfig):
    """Which problems."""

    problems: dict[str, Any] = {"name": "op_dag"}
    """Keys of the task, as a study has them under `task`."""
    folder: Path = Path()
    """Of the files of tasks of one's own, `file.py:Name`."""
    op: int = 1
    """Difficulty."""
    split: Literal["train", "validation", "rl", "test"] = "rl"
    """The split of problems; no two share one."""
    size: int = 100
    """Problems."""

    def rows(self) -> list[Row]:
        """The problems."""
        task = parse_task(self.problems, KeyPlace("interplay-tasks"), self.folder)
        one = {"bands": {"all": {self.op: 1.0}}, "shares": {"all": 1.0}, "size": self.size, "split": self.split}
        return problems.first_rows(ProblemsSpec(task=task, **one), Run(), self.size)


class InterplayData(vf.TaskData):
    """A problem."""

    row: dict[str, Any]
    """It as a row of a problem set, with its gold."""


class InterplayTask(vf.Task[InterplayData, vf.State, vf.TaskConfig]):
    """A problem, judged by the environment."""


class InterplayTaskset(vf.Taskset[InterplayTask, InterplayConfig]):
    """Problems of a task."""

    def load(self) -> Iterator[InterplayTask]:
        """Each problem, by index."""
        for row in self.config.rows():
            data = InterplayData(name=f"{row.family}#{row.index}", prompt=row.prompt, row=asdict(row))
            yield InterplayTask(data, self.config.task)


class InterplayEnvConfig(vf.EnvConfig):
    """The one seat."""

    player: vf.AgentConfig = vf.AgentConfig()
    """Who answers, or acts."""


class InterplayEnv(vf.Env[InterplayEnvConfig]):
    """Plays an episode, of one turn where the task is no environment, and pays what the verifier says: reward `answer`, and
    metrics `strict`, `score` and `turns`."""

    async def run(self, task: InterplayTask, agents: vf.Agents) -> None:
        """One episode."""
        row = Row(**task.data.row)
        async with agents.player.interaction(task) as interaction:
            said, observed = await play(row, interaction)
        verdict = sets.judge_completion(Verify(), row, join_turns(said, observed)) if said else None
        interaction.trace.record_reward("answer", float(verdict.answer) if verdict else 0.0, 1.0)
        interaction.trace.record_metric("strict", float(verdict.strict) if verdict else 0.0)
        interaction.trace.record_metric("score", verdict.score if verdict else 0.0)
        interaction.trace.record_metric("turns", float(len(said)))


async def play(row: Row, interaction: vf.Interaction) -> tuple[list[str], list[str]]:
    """The turns of the player, and what it read between them."""
    family, said, observed = judge_family(row.family), list[str](), list[str]()
    world = family.begin(family.loads(row.graph)) if isinstance(family, Environment) else None
    segment = await interaction.turn()
    while not segment.terminated:
        said.append(segment.last_reply)
        step = world.step(said[-1]) if world else None
        if step is None or step.done:
            break
        observed.append(step.text)
        segment = await interaction.turn(step.text)
    if world:
        world.close()
    return said, observed[: max(0, len(said) - 1)]
