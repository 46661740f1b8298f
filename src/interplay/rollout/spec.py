"""Specs of rollout engines and episodes."""

from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from interplay.core.extension import Extension, written_as
from interplay.core.keys import holds_once
from interplay.core.model import Count, Exact, Scheduled, Since
from interplay.data.steps.turns_spec import LIBRARY, Retrieval
from interplay.model.spec import Shape
from interplay.rollout import seat_spec

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


class FullContext(Exact):
    """All turns so far, or those of the window."""

    name: Literal["full"] = "full"


class StateContext(Exact):
    """The environment's own text of its state in place of the history (tic_tac_toe: the board; a class of your own: `state()`),
    so that each turn is a row of its own, as with a window."""

    name: Literal["state"] = "state"


class SummaryContext(Exact):
    """What the policy writes of the history takes its place. An episode is a row for each part between two such notes, each with
    the reward of its episode, the note at the end of the part that it sums up (SUPO, arXiv:2510.06727; with `every: 1` a note
    that is rewritten after each turn). Notes go to no environment and count as no turn of `max_turns`."""

    name: Literal["summary"] = "summary"
    every: Count = 4
    """Turns after which it is written."""
    ask: str = Field(default="Summary: ", min_length=1)
    """What the policy reads before it writes one, in characters that the tokenizer has."""
    shown: Annotated[str, holds_once("{summary}")] = "{summary}\n"
    """What follows the prompt from then on; {summary} is the note."""
    trained: bool = True
    """Whether notes are learnt from, as published; else they are read alone."""


class RetrievedContext(Retrieval):
    """Entries of a library (docs/guide/turns.md) before the prompt, found by what was read. They are no part of what is
    learnt, nor of what is judged."""

    name: Literal["retrieved"] = "retrieved"
    library: str
    """Problem set; the planner puts the role `library` in its place. With `arm: before` in it the model that the stage starts
    from made it, and of an evaluation the model that is evaluated."""
    each: Literal["episode", "turn"] = "episode"
    """episode: found once, by the prompt; turn: found anew before each turn by what was read last, in place of those before, so
    that each turn is a row of its own, as with a window."""


class PlaybookContext(Exact):
    """The first entries of a library before the prompt, the same for all prompts: those that the most episodes gave, or lines
    that a model wrote (kind generate) and the step `library` put in order."""

    name: Literal["playbook"] = "playbook"
    library: str
    """As above."""
    k: Count = 10
    """Entries. A library of fewer is refused."""
    shown: Annotated[str, holds_once("{entries}")] = "{entries}"
    """Text before the prompt, with the field {entries}, in characters that the tokenizer has."""

    def retrieval(self) -> Retrieval:
        """The same as a retrieval."""
        return Retrieval(k=self.k, by="first", shown=self.shown, own=True)


Context = Annotated[FullContext | StateContext | SummaryContext | RetrievedContext | PlaybookContext, Field(discriminator="name")]


def library_of(episode: Any) -> str:
    """The problem set in which the context of an episode finds entries; empty: none."""
    return getattr(getattr(episode, "context", None), LIBRARY, "")


class Branching(Exact):
    """Part of a group goes on from inside other episodes of it: at the end of a turn, once what follows was read, an episode is
    continued a second time, with the state that its environment has there."""

    first: Count = 2
    """Episodes of a group that start from the prompt; the others are branches. Where no episode has a second turn to branch
    before, they start from the prompt, too."""
    at: Literal["uncertain", "random"] = "uncertain"
    """uncertain: before the turns whose first tokens were the least likely, relative to those of the first turn of the episode:
    their mean surprisal is an estimate of the entropy after a tool's reply (ARPO, arXiv:2507.19849, whose entropies are of the
    whole distribution, and which draws branches by a threshold); random: before any turn but the first (Tree-GRPO,
    arXiv:2509.21240)."""
    tokens: Count = 8
    """First tokens of a turn."""
    rounds: Count = 1
    """Rounds in which branches are added, in equal parts, each among the episodes so far, branches included."""
    baseline: Literal["prompt", "tree"] = "prompt"
    """What is compared: all episodes of a prompt, or an episode from the prompt with its branches, as a group of its own."""


class Turns(Exact):
    """What every episode of several turns has. A turn ends with the end token, which stays in the context, or with the length
    limit, which ends the episode, too: `max_completion_length` is that of a turn. What others write between the turns is read and
    never learnt."""

    NEEDS: ClassVar[frozenset[str]] = frozenset({"one_round"})
    PROVIDES: ClassVar[frozenset[str]] = frozenset({"first_turn", "several_turns"})
    REFUSES: ClassVar[frozenset[str]] = frozenset({"other_text", "begun_completions"})
    max_turns: Annotated[Several, Scheduled()] = 5
    """Turns after which an episode ends."""
    window: Count | None = None
    """Turns that follow the prompt in the context of the next one; null: all. With a window each turn is a row of its own,
    with the text that it was sampled from and the reward of its episode; statistics of a group count an episode once
    (DeepMiner, arXiv:2510.08276)."""

    context: Annotated[Context, Since(FullContext())] = FullContext()
    """What the policy sees at each turn."""
    read_as: Annotated[Literal["text", "user", "tool"], Since("text")] = "text"
    """How what is read after a turn is written. text: as it is; user, tool: as a message of that role, in the chat template of
    the model, without special tokens of its own. The prompt is written so by the step `chat_template`."""

    branch: Annotated[Branching | None, Since(None)] = None
    """Branches at turn ends; null: each episode starts from the prompt."""

    @model_validator(mode="after")
    def _branches(self) -> Self:
        if self.branch and (self.window is not None or self.context.name != "full"):
            raise ValueError("branch: goes on from all that was read; write window: null and context: {name: full}")
        return self

    def needs(self) -> frozenset[str]:
        """With branches also groups of one size."""
        return self.NEEDS | ({"equal_groups"} if self.branch else set())

    def provides(self) -> frozenset[str]:
        """Also a window of turns, or another context that is cut."""
        cut = self.window is not None or self.context.name in ("state", "summary") or getattr(self.context, "each", "") == "turn"
        return self.PROVIDES | ({"windowed_turns"} if cut else set())

    @model_validator(mode="after")
    def _one_context(self) -> Self:
        if self.window is not None and self.context.name != "full":
            raise ValueError(f"window: does not go with context {self.context.name}; write window: null")
        return self


class RetryEpisode(Turns):
    """After a wrong answer the policy reads a fixed sentence and answers again (UFO, arXiv:2507.14295). What is judged is each
    turn by itself; the episode is worth its last one."""

    name: Literal["retry"] = "retry"
    feedback: str = Field(default="Try again.\n", min_length=1)
    """What it reads; in characters that the tokenizer has."""
    always: bool = False
    """Whether it reads that after a right answer, too, so that all episodes have `max_turns` turns (SCoRe, arXiv:2409.12917, with
    two)."""

    @model_validator(mode="after")
    def _no_state(self) -> Self:
        if self.context.name == "state":
            raise ValueError("context: state is an environment's, and retry has none; write full or summary")
        return self


class Action(Exact):
    """Where in a turn its action is. Text next to the action is a thought, which the environment does not read. A turn without a
    mark of the form, such as an answer, is given to the environment whole; one whose mark begins no readable call is replied to
    with `error`, and counts as a turn."""

    form: Literal["whole", "tag", "json", "fence", "call"] = "whole"
    """whole: all of the turn; tag: what is in the last `<tag>...</tag>`; json: the last object with `name` and `arguments`,
    which becomes `name(value)`, or `name(a=1, b="x")` of several arguments, in a tag as well; fence: the last code block between
    lines of three backticks; call: the last `name(...)` of one of `tools`."""
    tag: str = Field(default="call", pattern=r"^\w+$")
    """Name of the tag."""
    tools: list[str] = []
    """Names that a call may have; of code blocks their languages; empty: any."""
    named: Annotated[bool, Since(False)] = False
    """tag, fence: the environment gets `name(text)` in place of the text, with the name of the tag or the language of the block:
    as the tools of the step `with_tools` are called. Tags are then those of `tools`, `<python>...</python>`."""
    thought: bool = True
    """Whether there may be text next to a call; else such a turn is replied to with `error`."""
    error: str = Field(default="error\n", min_length=1)
    """What the policy reads after a call that cannot be read, in characters that the tokenizer has; {why} says why."""

    @model_validator(mode="after")
    def _names(self) -> Self:
        if self.form == "call" and not self.tools:
            raise ValueError("tools: empty; with form: call write the names that a call may have, such as tools: [calc]")
        if self.named and (self.form not in ("tag", "fence") or not self.tools):
            raise ValueError("named: goes with form: tag or fence, and with the names of the tools, such as tools: [python]")
        return self


class EnvironmentEpisode(Turns):
    """Turn by turn with the environment of the problem's family (calculator, bios_search, self_search, twenty_questions,
    tic_tac_toe, kuhn, or one of your own), until that says that it is over. What is judged is the transcript of its actions. An
    episode that is not over after `max_turns` counts as truncated."""

    PROVIDES: ClassVar[frozenset[str]] = Turns.PROVIDES | {"paid_turns"}
    name: Literal["environment"] = "environment"
    action: Annotated[Action, Since(Action())] = Action()
    """Where in a turn its action is."""
    stop: Annotated[str | None, Since(None), Field(min_length=1)] = None
    """Text at which a turn ends in any case, without an end token, so that the environment takes over from a model that would
    write its part, too (self_search: `)`); null: turns end with the end token."""


class ReadingEpisode(Exact):
    """A long prompt, read in chunks: after each the policy rewrites its note, and in the end it answers from the question and the
    note (MemAgent, arXiv:2507.02259). Each turn is a row with the reward of the answer; statistics of a group count an episode
    once."""

    NEEDS: ClassVar[frozenset[str]] = frozenset({"one_round", "bare_prompts"})
    PROVIDES: ClassVar[frozenset[str]] = frozenset({"first_turn", "several_turns", "windowed_turns"})
    REFUSES: ClassVar[frozenset[str]] = frozenset({"other_text", "begun_completions"})
    name: Literal["reading"] = "reading"
    chunk: Count = 64
    """Tokens that are read at a time."""
    divide: str = Field(min_length=1)
    """Text that begins the question in a prompt, at its last occurrence; what is before it is read in chunks."""
    read: Annotated[str, holds_once("{chunk}")] = "{question}{note}{chunk}"
    """What the policy reads before it writes a note, with the fields {question}, {note} and, once, {chunk}."""
    answered: str = "{question}{note}"
    """What it reads before it answers."""
    note: str = ""
    """The note before the first chunk."""
    trained: bool = True
    """Whether notes are learnt from, as published; else the answer alone is."""
    max_turns: Several = 20
    """Chunks of a prompt at most, and the answer; a longer prompt is refused."""


class SelfPlayEpisode(Exact):
    """A game of two seats, both of them the policy (SPIRAL, arXiv:2506.24119). Each seat's turns are a row, with the other's as
    observations; the rows of a seat make a group. For families that are games (tic_tac_toe, kuhn)."""

    NEEDS: ClassVar[frozenset[str]] = frozenset({"game_payoff", "equal_groups", "bare_prompts", "one_round"})
    PROVIDES: ClassVar[frozenset[str]] = frozenset({"first_turn", "several_turns", "seats"})
    name: Literal["self_play"] = "self_play"
    max_turns: Several = 20
    """Turns of both seats after which a game is a draw."""


class SeatsEpisode(Exact):
    """An episode of several seats, in turns. In games (tic_tac_toe, kuhn: seats `first` and `second`) and in worlds of several
    seats the rules say whose turn it is; elsewhere `order` does, and the last seat of it acts: its turns go to the environment
    of the family, or are the answer. Each seat that is learnt from is a row, with what it read as observations; the rows of a
    seat make a group, so that a seat is compared with itself."""

    NEEDS: ClassVar[frozenset[str]] = frozenset({"equal_groups", "bare_prompts", "one_round"})
    PROVIDES: ClassVar[frozenset[str]] = frozenset({"first_turn", "several_turns", "seats", "paid_turns"})
    name: Literal["seats"] = "seats"
    seats: seat_spec.Seats
    """Name of a seat -> who plays it: the policy, a frozen model, a pool of such, a script, a class of your own; or a judge, who
    has no seat in the rules and speaks once at the end."""
    order: list[str] = []
    """Who speaks after whom, again and again until the last one has boxed an answer or its environment says that it is over; of
    families without seats of their own. The last seat acts."""
    credit: seat_spec.Credit = "own"
    """Whose reward is whose. own: each seat's its own; shared: the mean of all (cooperation); zero_sum: its own less the mean of
    the others'; or weights, {seat: {seat: weight}}."""
    rotate: bool = False
    """Whether those who play change places: in sample n each sits n places further on."""
    action: Action = Action()
    """Where in a turn its action is; what is next to it is a thought."""
    max_turns: Several = 20
    """Turns of all seats after which an episode ends; a game is then a draw."""

    def players(self) -> list[str]:
        """The seats that are no judges."""
        return [name for name, one in self.seats.items() if not isinstance(one, seat_spec.JudgeSeat)]

    def trained(self) -> bool:
        """Whether there is a seat to learn from."""
        return any(isinstance(one, seat_spec.PolicySeat) and one.trained for one in self.seats.values())

    @model_validator(mode="after")
    def _seated(self) -> Self:
        if not any(isinstance(one, seat_spec.PolicySeat) for one in self.seats.values()):
            raise ValueError("seats: none is the policy's; write {name: policy} for one")
        if odd := [name for name in self.order if name not in self.players()]:
            raise ValueError(f"order: no seat '{odd[0]}'; the seats are {', '.join(self.players())}")
        if missing := [name for name in self.players() if self.order and name not in self.order]:
            raise ValueError(f"order: seat '{missing[0]}' never speaks; add it, or remove the seat")
        if self.rotate and self.order:
            raise ValueError("rotate: seats of an order have parts of their own; write false")
        if self.rotate and not isinstance(self.credit, str):
            raise ValueError("credit: weights are of seats, and with rotate players change them; write rotate: false")
        if len({one.every for one in self.seats.values() if isinstance(one, seat_spec.PoolSeat) and one.every}) > 1:
            raise ValueError("seats: past policies join all pools at the same steps; write one every")
        for name, one in self.seats.items():
            if isinstance(one, seat_spec.PoolSeat) and not (one.models or one.every):
                raise ValueError(f"seats.{name}: an empty pool; write models: [ARM], or every: 10 for past policies of the run")
            if isinstance(one, seat_spec.ScriptSeat) and self.order:
                raise ValueError(f"seats.{name}: scripts play games; in an order write a class of yours, such as file.py:User")
        seat_spec.credit_matrix(self.credit, self.players())
        return self


class OwnEpisode(Extension):
    """An episode of the user's own: `function(setting, asked, **options)`, which returns what was played
    (`rollout.turns.Played`)."""

    UNION: ClassVar[str] = "episode"
    max_turns: Annotated[int, Field(ge=1, le=1000)] = 1
    """Turns that it has at most, by which the plan's cost is counted."""

    def needs(self) -> frozenset[str]:
        """Of several turns, what every such episode needs."""
        return Turns.NEEDS if self.max_turns > 1 else self.NEEDS

    def provides(self) -> frozenset[str]:
        """Of several turns, what every such episode provides."""
        return Turns.PROVIDES | {"paid_turns"} if self.max_turns > 1 else self.PROVIDES

    def refuses(self) -> frozenset[str]:
        """Of several turns, what every such episode refuses."""
        return Turns.REFUSES if self.max_turns > 1 else self.REFUSES


Episode = Annotated[
    CompletionEpisode | RetryEpisode | EnvironmentEpisode | ReadingEpisode | SelfPlayEpisode | SeatsEpisode | OwnEpisode,
    Field(discriminator="name"),
    written_as(OwnEpisode),
]
AloneEpisode = Annotated[
    RetryEpisode | EnvironmentEpisode | ReadingEpisode | SeatsEpisode | OwnEpisode,
    Field(discriminator="name"),
    written_as(OwnEpisode),
]
"""Episodes of several turns that an evaluation can read: one for each sample, of the first seat of the policy."""
