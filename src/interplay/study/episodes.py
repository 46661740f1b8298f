"""Whether the problems of a stage can be played as its episode plays them."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from interplay.schema.base import Model, UserError
from interplay.schema.data import ProblemsSpec
from interplay.schema.episode import EnvironmentEpisode, SelfPlayEpisode
from interplay.schema.evaluate import EvaluateSpec
from interplay.schema.rl import RLSpec
from interplay.tasks.table import ENVIRONMENTS, GAMES

if TYPE_CHECKING:
    from interplay.study.plan import Stage


def check(spec: Model, deps: Mapping[str, str], stages: Mapping[str, "Stage"], where: str) -> None:
    """Raises UserError where an episode needs families that reply, or games, and a generated set of the stage is of another. Sets
    that steps made or that were read from files are looked at when the stage begins."""
    if isinstance(spec, RLSpec):
        episode, key = spec.method.episode, "method.episode"
    elif isinstance(spec, EvaluateSpec) and spec.episode:
        episode, key = spec.episode, "episode"
    else:
        return
    able = GAMES if isinstance(episode, SelfPlayEpisode) else ENVIRONMENTS if isinstance(episode, EnvironmentEpisode) else None
    for role, digest in deps.items():
        data = stages[digest].spec if role.split(".")[0] == "data" and digest in stages else None
        if able is not None and isinstance(data, ProblemsSpec) and not data.transform and data.task.name not in able:
            needs = "a game" if able is GAMES else "a family that replies"
            raise UserError(
                f"{where}.{key} = {episode.name}: needs problems of {needs}, and {role} has those of {data.task.name}; "
                f"known: {', '.join(able)}"
            )
