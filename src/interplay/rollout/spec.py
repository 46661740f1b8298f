"""Specs of rollout engines and episodes."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from interplay.core.extension import Extension, written_as
from interplay.core.model import Count, Exact, Since
from interplay.model.spec import Shape

# Engines: which can sample what.


class OwnEngine(Extension):
    """An engine of the user's own: `function(decoder, how, dtype, **options)`, which returns a `rollout.engine.Engine`."""

    UNION: ClassVar[str] = "engine"


EngineName = Annotated[Literal["native", "hf", "vllm"] | OwnEngine, written_as(OwnEngine)]


def check_dtype(engine: str | OwnEngine, dtype: str) -> None:
    """Raises ValueError where the engine cannot compute in that dtype."""
    if dtype == "int8" and engine in ("hf", "vllm"):
        raise ValueError(f"dtype = int8: the engine {engine} has no such products; write float32 or bfloat16, or engine: native")


VLLM_CPU_HEAD_DIMS = (32, 64, 80, 96, 112, 128, 160, 192, 224, 256, 512)
"""Widths of a head that attention of vLLM 0.32 computes on a CPU; others end its first pass."""


def vllm_misfit(shape: Shape, on_cpu: bool) -> str | None:
    """Why vLLM does not compute a model of this shape; None: it does."""
    head = shape.head_dim
    if on_cpu and head not in VLLM_CPU_HEAD_DIMS:
        return f"the model's head_dim is {head}, and on a CPU vLLM computes {', '.join(map(str, VLLM_CPU_HEAD_DIMS))}"
    if shape.architecture == "qwen2" and head * shape.num_attention_heads != shape.hidden_size:
        return f"the model's head_dim is {head}, and vLLM takes that of a qwen2 for hidden_size / num_attention_heads"
    return None


# Members of the episode seam: how the policy acts on a prompt, in one turn or in several.


Several = Annotated[int, Field(ge=2, le=1000)]


class CompletionEpisode(Exact):
    """One completion per prompt, one turn."""

    name: Literal["completion"] = "completion"


class Turns(Exact):
    """What every episode of several turns has. A turn ends with the end token, which stays in the context, or with the length
    limit, which ends the episode, too: `max_completion_length` is that of a turn. What others write between the turns is read and
    never learnt."""

    NEEDS: ClassVar[frozenset[str]] = frozenset({"one_round"})
    PROVIDES: ClassVar[frozenset[str]] = frozenset({"first_turn", "several_turns"})
    REFUSES: ClassVar[frozenset[str]] = frozenset({"other_text", "begun_completions"})
    max_turns: Several = 5
    """Turns after which an episode ends."""
    window: Count | None = None
    """Turns that follow the prompt in the context of the next one; null: all. With a window each turn is a row of its own,
    with the text that it was sampled from and the reward of its episode; statistics of a group count an episode once
    (DeepMiner, arXiv:2510.08276)."""

    def provides(self) -> frozenset[str]:
        """Also a window of turns."""
        return self.PROVIDES | ({"windowed_turns"} if self.window is not None else set())


class RetryEpisode(Turns):
    """After a wrong answer the policy reads a fixed sentence and answers again (UFO, arXiv:2507.14295). What is judged is each
    turn by itself; the episode is worth its last one."""

    name: Literal["retry"] = "retry"
    feedback: str = Field(default="Try again.\n", min_length=1)
    """What it reads; in characters that the tokenizer has."""
    always: bool = False
    """Whether it reads that after a right answer, too, so that all episodes have `max_turns` turns (SCoRe, arXiv:2409.12917, with
    two)."""


class EnvironmentEpisode(Turns):
    """Turn by turn with the environment of the problem's family (calculator, bios_search, self_search, twenty_questions,
    tic_tac_toe, kuhn), until that says that it is over. What is judged is the whole transcript."""

    name: Literal["environment"] = "environment"
    stop: Annotated[str | None, Since(None), Field(min_length=1)] = None
    """Text at which a turn ends in any case, without an end token, so that the environment takes over from a model that would
    write its part, too (self_search: `)`); null: turns end with the end token."""


class SelfPlayEpisode(Exact):
    """A game of two seats, both of them the policy (SPIRAL, arXiv:2506.24119). Each seat's turns are a row, with the other's as
    observations; the rows of a seat make a group. For families that are games (tic_tac_toe, kuhn)."""

    NEEDS: ClassVar[frozenset[str]] = frozenset({"game_payoff", "equal_groups", "bare_prompts", "one_round"})
    PROVIDES: ClassVar[frozenset[str]] = frozenset({"first_turn", "several_turns", "seats"})
    name: Literal["self_play"] = "self_play"
    max_turns: Several = 20
    """Turns of both seats after which a game is a draw."""


class OwnEpisode(Extension):
    """An episode of the user's own: `function(setting, asked, **options)`, which returns what was played
    (`rollout.episodes.Played`)."""

    UNION: ClassVar[str] = "episode"
    max_turns: Annotated[int, Field(ge=1, le=1000)] = 1
    """Turns that it has at most, by which the plan's cost is counted."""

    def needs(self) -> frozenset[str]:
        """Of several turns, what every such episode needs."""
        return Turns.NEEDS if self.max_turns > 1 else self.NEEDS

    def provides(self) -> frozenset[str]:
        """Of several turns, what every such episode provides."""
        return Turns.PROVIDES if self.max_turns > 1 else self.PROVIDES

    def refuses(self) -> frozenset[str]:
        """Of several turns, what every such episode refuses."""
        return Turns.REFUSES if self.max_turns > 1 else self.REFUSES


Episode = Annotated[
    CompletionEpisode | RetryEpisode | EnvironmentEpisode | SelfPlayEpisode | OwnEpisode,
    Field(discriminator="name"),
    written_as(OwnEpisode),
]
AloneEpisode = Annotated[RetryEpisode | EnvironmentEpisode | OwnEpisode, Field(discriminator="name"), written_as(OwnEpisode)]
"""Episodes of several turns that an evaluation can read: one for each sample."""
