"""The interface of task families (tasks.families looks them up by name).

A family is one frozen object: a row that names the functions it implements. `Family` judges completions, `Generator` also
generates problems, `Environment` also replies to the turns of a policy, and `Game` also has two seats. `tasks.spec.FAMILIES`
lists where each family is defined; a module is imported when its family is first looked up, so that planning stays light."""

import hashlib
import json
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from pydantic import TypeAdapter

from interplay.core import model
from interplay.tasks.spec import Verify
from interplay.tasks.verdict import Row, Statement, Verdict

P = TypeVar("P")
"""The family's problems: a NamedTuple with `mode`, and for generators `op` where a model may write the problem."""
T = TypeVar("T")
"""The family's task: its class in `tasks.spec.Task`."""


class Rendered(NamedTuple):
    """What the model reads and what it should write. The prompt ends where the solution begins."""

    prompt: str
    solution: str
    """The gold solution, which ends in the answer; of an environment the expert's transcript."""
    answer: str


class Paragraph(NamedTuple):
    """One document."""

    title: str
    sentences: tuple[str, ...]

    @property
    def text(self) -> str:
        """Its sentences as one text."""
        return " ".join(map(str.strip, self.sentences))


class Item(NamedTuple):
    """One question over documents, from a file in a published format or from a family that generates them."""

    id: str
    question: str
    answers: tuple[str, ...]
    """Acceptable answers, the canonical one first."""
    paragraphs: tuple[Paragraph, ...]
    supporting: tuple[tuple[int, int], ...]
    """(paragraph, sentence) of each fact that the answer needs; all of a paragraph's sentences where only it is known."""
    hops: int
    """Facts that lead to the answer."""
    type: str
    """The source's own class of question, such as bridge or comparison."""
    steps: tuple[str, ...] = ()
    """The gold reasoning, one sentence per hop; empty where the source has none."""


class Table(NamedTuple):
    """A table of a database."""

    name: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str | int | float | None, ...], ...]


class Step(NamedTuple):
    """What an environment returns for an action."""

    text: str
    """What the policy reads next."""
    reward: float | None = None
    """What it pays for the turn, which the reward `environment` passes on; None: nothing by itself."""
    done: bool = False
    """Whether the episode is over; the text is then not read."""
    seat: int | None = None
    """Who is to act next, in a world of several seats; None: the one seat that there is."""
    info: Mapping[str, Any] = MappingProxyType({})
    """JSON values that are recorded with the turn, and read by nothing."""
    tool: str = ""
    """The tool that the turn called; empty: none."""
    pays: Mapping[int, float] = MappingProxyType({})
    """What it pays to seats other than the one that acted, such as when the episode ends, in a world of several."""


class World(Protocol):
    """An environment as an object with a state. It is deterministic by replay: the same problem, seed and actions give the same
    steps, byte by byte, in any process."""

    def reset(self, problem: Any, seed: int) -> str:
        """Begin an episode; the first observation, which is the prompt. The seed is a function of the problem."""

    def step(self, action: str) -> Step:
        """Act. Never raises on account of the action."""

    def close(self) -> None:
        """The episode is over."""


class Replayed:
    """A pure function of problem and actions as a world."""

    def __init__(self, reply: Callable[[Any, list[str]], Step], shown: Callable[[Any, list[str]], str] | None = None) -> None:
        self.reply, self.shown, self.actions = reply, shown, list[str]()

    def reset(self, problem: Any, seed: int) -> str:
        """Begin; the function knows no first observation."""
        self.problem, self.actions = problem, []
        return ""

    def step(self, action: str) -> Step:
        """The function's reply to all actions so far."""
        self.actions.append(action)
        return self.reply(self.problem, list(self.actions))

    def state(self) -> str | None:
        """The text of the state; None: the environment has none."""
        return self.shown(self.problem, list(self.actions)) if self.shown else None

    def close(self) -> None:
        """There is nothing to close."""


class PlainProblem(NamedTuple):
    """A problem in plain notation, for people."""

    given: list[tuple[str, bool]]
    """What is given, in the order of the prompt, and whether the answer needs it."""
    asks: str


class PlainStep(NamedTuple):
    """A step of a completion in plain notation."""

    text: str
    wrong: str = ""
    """What is wrong with it, or what would be right; empty where nothing is."""


Replies = Callable[[list[str]], Step]
"""An environment bound to its problem: the policy's turns so far -> the reply to the last one."""


class Position(NamedTuple):
    """The state of a game after some moves."""

    mover: int
    """Seat that is to move; -1: the game is over."""
    payoff: float = 0.0
    """Of seat 0, in [-1, 1]; seat 1 has its negative. 0 while the game is not over."""
    legal: bool = True
    """Whether all moves were legal."""


class Language(NamedTuple):
    """How prompts of a family that a model wrote are parsed."""

    read: Callable[[str, Any], Any]
    """(text, task) -> the problem that it poses, or one of the flaws."""
    starts: Callable[[Any], str]
    """task -> the characters that a prompt may begin with."""
    end: str
    """The token that ends a prompt and occurs nowhere else in one."""
    flaws: tuple[str, ...]
    """Why a text poses no problem."""


class Rates(NamedTuple):
    """Rates and sizes per problem, measured with bench/corpus_scale.py at small ops (docs/log.md), for estimates of plans. Harder
    problems take longer in proportion to their length."""

    made: float
    """Problems generated, rendered, solved and written per second and thread."""
    packed: float
    """Problems tokenised and packed per second by one thread."""
    set_bytes: float
    """Bytes of a problem set."""
    corpus_bytes: float
    """Bytes of a corpus, five per token."""


def compact_json(problem: Any) -> str:
    """A problem as JSON, one line; a NamedTuple as a list."""
    return json.dumps(problem, separators=(",", ":"))


def episode_seed(problem: str) -> int:
    """The seed, below 2^31, that episodes of a problem, as `dumps` writes it, begin with."""
    return int.from_bytes(hashlib.sha256(problem.encode()).digest()[:4]) >> 1


def check_op(task: Any, op: int, *keys: str) -> None:
    """Raises UserError, which names these keys of the task, where it has no such op."""
    low, high = task.ops()
    if not low <= op <= high:
        shown = ", ".join(f"{key} {getattr(task, key)}" for key in keys)
        raise model.UserError(f"task {task.name}: op {op} lies outside {low}..{high} ({shown})")


def is_encodable(value: Any) -> bool:
    """Whether a JSON value can be written in UTF-8: a lone surrogate, as an escape may spell half of a character, cannot."""
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except (UnicodeEncodeError, RecursionError):
        return False
    return True


def from_json(kind: type[P]) -> Callable[[str], P]:
    """The `loads` of problems of this NamedTuple, as a list of its fields or as an object. Raises ValueError for other texts."""
    return TypeAdapter(kind).validate_json


@dataclass(frozen=True, kw_only=True)
class Family(Generic[P]):
    """A family that judges completions."""

    name: str
    errors: tuple[str, ...]
    """Error classes of its verdicts, except `none`."""
    loads: Callable[[str], P]
    """The gold of a row (column `graph`) -> the problem."""
    verify: Callable[[P, str, Verify], Verdict]
    """(problem, completion, options) -> verdict. Never raises on account of the completion."""
    trivial_score: Callable[[P], float] | None = None
    """The score of a fixed policy that reads nothing, such as citing every document."""
    item: Callable[[P], Item | None] | None = None
    """The question over documents of a problem; None where it has none."""
    statements: Callable[[P, str], list[Statement]] | None = None
    """(problem, completion) -> what it states, in order, for counts of behaviours; None: its facts, where it has an item."""
    open_question: Callable[[Row], Row] = lambda row: row
    """The row of the original question, as far as that question goes, of a row in another form."""
    tables: Callable[[P], tuple[Table, ...]] | None = None
    """What SQL can read of a problem; None: its documents, where it has some."""
    calls: Callable[[P], Mapping[str, Sequence[str]]] | None = None
    """Name of a tool -> the inputs with which an expert finds the answer to a problem, in order; None: no expert is known."""
    plain_problem: Callable[[P], PlainProblem] | None = None
    """The problem in plain notation; None: its prompt is plain."""
    plain_steps: Callable[[P, str], list[PlainStep]] | None = None
    """(problem, completion) -> the steps of the completion in plain notation, judged; None: its completions are plain. Never
    raises on account of the completion."""


@dataclass(frozen=True, kw_only=True)
class Generator(Family[P], Generic[P, T]):
    """A family that generates problems."""

    generate: Callable[[T, int, int, int], P]
    """(task, seed, index, op) -> the problem; a pure function. Raises UserError where the task has no such op."""
    render: Callable[[P, T], Rendered]
    solve: Callable[..., str] | None
    """(prompt, task) -> the answer, from the prompt alone: the oracle for the generator. Of an environment (prompt, task,
    replies). None: the gold solution is judged instead."""
    structure: Callable[[P], str]
    """16 hex digits, equal for problems that differ in names and order only: the key by which problems fall into splits."""
    vocabulary: Callable[[T], list[str]]
    """The pieces of a tokenizer of words."""
    shared: Callable[[P], bool] = lambda problem: False
    """Whether a problem belongs to every split, such as a fact to be memorised; by default it belongs to one."""
    dumps: Callable[[P], str] = compact_json
    """The inverse of `loads`."""
    characters: Callable[[T], str] | None = None
    """The characters of a tokenizer of characters; None: those of the vocabulary, sorted."""
    language: Language | None = None
    """How problems that a model wrote are parsed; None: a model cannot write them."""
    rates: Rates | None = None
    """None: not measured."""
    check: Callable[[T], None] | None = None
    """Raises UserError where the problems of a task cannot be generated here, since a package or a name in it is missing; asked
    when a study is planned. None: they can."""

    def alphabet(self, task: T) -> str:
        """All characters of the task, in a fixed order."""
        return self.characters(task) if self.characters else "".join(sorted(set("".join(self.vocabulary(task)))))

    def answer(self, task: T, problem: P, prompt: str) -> str:
        """The solver's answer to a prompt. Raises UserError where there is no solver and the gold solution is not right."""
        return self.solve(prompt, task) if self.solve else self.judged_gold(task, problem)

    def judged_gold(self, task: T, problem: P) -> str:
        """The answer, once the verifier found the gold solution right, where there is one."""
        shown = self.render(problem, task)
        if shown.solution and not (found := self.verify(problem, shown.solution, Verify())).answer:
            why = f"its verifier finds its own solution wrong (error {found.error})"
            raise model.UserError(f"{self.name}: {why}: prompt {shown.prompt[:60]!r}, solution {shown.solution[:60]!r}")
        return shown.answer


@dataclass(frozen=True, kw_only=True)
class Environment(Generator[P, T]):
    """A family that replies to the turns of a policy."""

    reply: Callable[[P, list[str]], Step]
    """(problem, the policy's turns so far) -> the step of the last one; a pure function."""
    expert: Callable[[P], list[str]]
    """The turns of a scripted expert; none where there is none."""
    world: Callable[[], World] | None = None
    """A new world, whose replay `reply` then is; None: `reply` is the world."""
    state: Callable[[P, list[str]], str] | None = None
    """(problem, the policy's turns so far) -> the state in words, which says all that a next turn needs; None: there is none, or
    `world` has a method of that name."""
    seat_names: tuple[str, ...] = ()
    """The seats of a world of several, in the order in which they act unless a step says who is next; none: there is one."""
    briefs: Callable[[P], Sequence[str]] | None = None
    """What each of them reads first; None: the prompt."""
    settled: Callable[[P, float, bool, str], Verdict] | None = None
    """(problem, what a seat was paid, whether all is over, what it said last) -> the verdict on it, of a world of several."""
    chance: float = 0.2
    """The share of episodes that random legal actions, or others that do not solve the problem, may win."""

    def begin(self, problem: P) -> World:
        """A world at the start of an episode."""
        made = self.world() if self.world else Replayed(self.reply, self.state)
        made.reset(problem, episode_seed(self.dumps(problem)) if self.world else 0)
        return made

    def answer(self, task: T, problem: P, prompt: str) -> str:
        """The solver's answer to a prompt; the solver may act in the environment."""
        return self.solve(prompt, task, partial(self.reply, problem)) if self.solve else self.judged_gold(task, problem)


@dataclass(frozen=True, kw_only=True)
class Game(Environment[P, T]):
    """An environment that is a game of two seats."""

    seat_names: tuple[str, ...] = ("first", "second")
    """Seat 0 moves first."""
    seats: Callable[[P], tuple[str, str]]
    """The prompts of both seats."""
    position: Callable[[P, Sequence[str]], Position]
    """The state after these moves."""
    judge: Callable[[P, Sequence[str], int], Verdict]
    """(problem, moves, seat) -> the verdict on a seat of a game between two policies."""
    best: Callable[[P, Sequence[str]], str]
    """(problem, moves) -> the move of the game's expert."""
    scripted: Callable[[P, Sequence[str]], str]
    """(problem, moves) -> the move of its scripted opponent."""
    legal: Callable[[P, Sequence[str]], list[str]]
    """(problem, moves) -> the moves that there are."""


# Tasks and environments of users' own, which `tasks.families` makes families of.


class TaskClass(Protocol):
    """A task as a class. A problem is any JSON value. It may also have `solution(problem)` (by default the boxed answer),
    `verify(problem, completion)` (true, false, a number in [0, 1] or a Verdict; by default whether the box holds the answer),
    `solve(prompt)` (an oracle for the generator), `structure(problem)` (a text, the same for problems that may not be in two
    splits; by default the prompt) and `vocabulary()` (by default the characters of ASCII)."""

    def __init__(self) -> None:
        """Options are its own."""

    def generate(self, rng: random.Random, op: int) -> Any:
        """A problem of difficulty `op`, drawn from `rng` alone."""

    def prompt(self, problem: Any) -> str:
        """What the model reads."""

    def answer(self, problem: Any) -> str:
        """The gold answer."""


class EnvironmentClass(Protocol):
    """An environment as a class, of which each episode has an object; deterministic by replay: the same problem, seed and actions
    give the same steps. It may also have `expert(problem)` (actions, which models can be taught), `answer`, `solve`, `structure`
    and `vocabulary` as a task, `target` (what an episode has to pay to be right, by default 1), `chance` (the share of episodes
    that actions which do not solve the problem may win, by default 0.2, and 1 where the target is not above 0), `legal()` (the
    actions that there are now, for the audit), `state()` (a text that says all that a next turn needs) and `close()`. One of
    several seats has their names in `seats` and may have `brief(problem, seat)` (what a seat reads first, by default what `reset`
    returns), and it says in a step whose turn is next (`seat`, by default in order) and what others than the one that acted are
    paid (`pays`)."""

    def __init__(self) -> None:
        """Options are its own; what an episode opens is opened in reset."""

    def generate(self, rng: random.Random, op: int) -> Any:
        """A problem of difficulty `op`, drawn from `rng` alone; any JSON value."""

    def reset(self, problem: Any, seed: int) -> str:
        """Begin an episode; the prompt."""

    def step(self, action: str) -> Step:
        """`tasks.family.Step(text, reward, done, seat, info)` of any text."""
