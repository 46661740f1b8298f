"""The table of episodes, by the `name` of their spec."""

from collections.abc import Callable, Sequence

from interplay.rollout.episodes.alone import environment, retry
from interplay.rollout.episodes.play import Played, Setting
from interplay.rollout.episodes.self_play import self_play
from interplay.rollout.request import Request
from interplay.schema.episode import CompletionEpisode, Episode


def completion(spec: CompletionEpisode, setting: Setting, asked: Sequence[Request]) -> Played:
    """One completion per sample, one turn."""
    return Played(setting.engine.generate(list(asked), setting.sampling))


MEMBERS: dict[str, Callable[..., Played]] = {
    "completion": completion,
    "retry": retry,
    "environment": environment,
    "self_play": self_play,
}


def play(spec: Episode, setting: Setting, asked: Sequence[Request]) -> Played:
    """The member that `spec` names."""
    return MEMBERS[spec.name](spec, setting, asked)
