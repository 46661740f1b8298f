"""Transcripts of episodes: the turns of a policy and the observations between them as one text, the verdict on one, and
environments of a tool, which is all that they need; and text without questions, documents and chats.

MARK separates the parts. No tokenizer of ours has MARK, and an episode removes it from what a model writes: training learns each
turn as a solution of its own (data.corpus), and an episode puts the end token in its place."""

import copy
import hashlib
import json
import math
import random
import re
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple, Protocol, TypeVar

from interplay.core import extension
from interplay.core.model import UserError
from interplay.tasks.family import Environment, Family, Generator, Rendered, Replies, Step, compact_json, episode_seed, from_json
from interplay.tasks.spec import OwnTask, Verify
from interplay.tasks.verdict import BOX, Verdict, extract_answer, first_error, is_answer_dump

P = TypeVar("P")
"""The problems of an environment."""
MARK = "\x1e"
"""Record separator."""
UNANSWERED = Verdict(False, False, 0.0, "truncated")
"""The verdict on an episode without an answer."""
TRANSCRIPT_ERRORS = ("truncated", "made_up", "answer", "process")
"""Error classes of `judge_transcript`."""
BROKEN = "error\n"
"""The reply to a turn that is no call of a tool."""


def policy_turns(transcript: str) -> list[str]:
    """The policy's turns of a transcript."""
    return transcript.split(MARK)[::2]


def observations(transcript: str) -> list[str]:
    """The observations between the turns."""
    return transcript.split(MARK)[1::2]


def join_turns(turns: Sequence[str], observed: Sequence[str]) -> str:
    """The transcript of n turns and the n - 1 observations between them. Raises ValueError for other numbers."""
    pairs = zip(turns, [*observed, ""], strict=True)
    return MARK.join([piece for pair in pairs for piece in pair][:-1])


def play(turns: Sequence[str], reply: Replies) -> str:
    """The transcript of these turns in an environment."""
    return join_turns(turns, [reply(list(turns[: n + 1])).text for n in range(len(turns) - 1)])


def move_line(move: str) -> str:
    """What the other seat of a game reads of a move."""
    return f"{move}\n"


def replies_match(transcript: str, reply: Replies) -> bool:
    """Whether the observations are the environment's replies, and the episode did not end before its last turn."""
    turns = policy_turns(transcript)
    replies = [reply(turns[: n + 1]) for n in range(len(turns) - 1)]
    return observations(transcript) == [each.text for each in replies] and not any(each.done for each in replies)


def judge_transcript(
    text: str, reply: Replies, answer: str, found_share: Callable[[list[str]], float] = lambda turns: 1.0
) -> Verdict:
    """The verdict on a transcript that should end in the boxed answer. Never raises on account of the text.

    `found_share(turns)`, in [0, 1], is the share of the necessary observations that the turns obtained. Strict: the answer is
    right, the share is 1 and the replies are the environment's. Score: the share where the answer is right, else 0. Errors:
    `truncated` (no answer, or too many), `made_up` (a reply that is not the environment's), `answer`, `process` (right with a
    share below 1)."""
    turns = policy_turns(text)
    boxed = extract_answer(turns[-1]) if BOX in turns[-1] and not is_answer_dump(turns[-1]) else None
    right, genuine, share = boxed == answer, replies_match(text, reply), found_share(turns)
    error = first_error(truncated=boxed is None, made_up=not genuine, answer=not right, process=share < 1)
    return Verdict(error == "none", right, share * float(right), error, said=boxed or "")


def tool_environment(
    tool: str,
    call: re.Pattern[str],
    use: Callable[[P, str], str | None],
    prompt: Callable[[P], str],
    answer: Callable[[P], str],
    found_share: Callable[[P, list[str]], float] = lambda problem, turns: 1.0,
    **functions: Any,
) -> Environment[P, Any]:
    """The environment of a tool: a turn that matches `call` as a whole is replied to by `use(problem, its group)`, any other turn
    (or where that is None) by BROKEN, and a box ends the episode. Transcripts are judged by `judge_transcript`."""

    def reply(problem: P, turns: list[str]) -> Step:
        if BOX in turns[-1]:
            return Step("", done=True)
        found = call.fullmatch(turns[-1])
        said = use(problem, found[1]) if found else None
        return Step(BROKEN if said is None else said, tool=tool if found else "")

    def render(problem: P, task: Any) -> Rendered:
        return Rendered(prompt(problem), play(functions["expert"](problem), partial(reply, problem)), answer(problem))

    def verify(problem: P, completion: str, options: Verify) -> Verdict:
        return judge_transcript(completion, partial(reply, problem), answer(problem), partial(found_share, problem))

    return Environment(errors=TRANSCRIPT_ERRORS, reply=reply, render=render, verify=verify, **functions)


# Tasks and environments of users' own: what they need not say is derived.


ASCII = ["\n", *map(chr, range(32, 127))]
"""The vocabulary of a task that names none."""


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


class OwnProblem(NamedTuple):
    """A problem of a user's own: any JSON value."""

    value: Any
    mode: str = "own"


LOST = (EOFError, ConnectionError)
"""What a world raises whose process is gone: it is made again, by replay."""


class OwnWorld:
    """A user's environment as a world. What it raises, and what it returns that is no step, is one line; its object is a cache,
    made again by replay when it is lost."""

    def __init__(self, task: OwnTask, make: Callable[[], Any]) -> None:
        self.task, self.make = task, make

    def reset(self, problem: OwnProblem, seed: int) -> str:
        """The first observation."""
        self.given, self.actions = (problem.value, seed), list[str]()
        with extension.errors_in(self.task):
            return _checked_text(self.task, "reset", self._replay())

    def _replay(self) -> Any:
        self.made, (problem, seed) = self.make(), self.given
        first = self.made.reset(copy.deepcopy(problem), seed)
        for action in self.actions:
            self.made.step(action)
        return first

    def step(self, action: str) -> Step:
        """What the user's environment returns, without MARK in its text."""
        with extension.errors_in(self.task):
            try:
                found = self.made.step(action)
            except LOST:
                self._replay()
                found = self.made.step(action)
        self.actions.append(action)
        if not isinstance(found, Step):
            raise UserError(f"{self.task.function}: step must return a tasks.family.Step, not {found!r:.60}")
        if found.reward is not None and extension.finite_number(found.reward) is None:
            raise UserError(f"{self.task.function}: step must pay a finite number or None, not {found.reward!r:.60}")
        return found._replace(text=_checked_text(self.task, "step", found.text), done=bool(found.done))

    def state(self) -> str | None:
        """The text of the state, where the user's class has a method of that name."""
        with extension.errors_in(self.task):
            return getattr(self.made, "state", lambda: None)()

    def legal(self) -> list[str]:
        """The actions that there are now; none where the user's class has no method of that name."""
        with extension.errors_in(self.task):
            return [*map(str, getattr(self.made, "legal", list)())]

    def close(self) -> None:
        """The episode is over."""
        with extension.errors_in(self.task):
            getattr(self.made, "close", lambda: None)()


def _checked_text(task: OwnTask, method: str, text: Any) -> str:
    if not isinstance(text, str):
        raise UserError(f"{task.function}: {method} must give a text, not {text!r:.60}")
    return text.replace(MARK, "")


def own_family(task: OwnTask, made: Any, make: Callable[[], Any]) -> Generator[OwnProblem, OwnTask]:
    """The family of an object of a user's class (TaskClass, EnvironmentClass); `make` makes another. Raises
    UserError where it is neither."""
    acts = callable(getattr(made, "step", None))
    if lacking := [name for name in ("generate", *(("reset",) if acts else ("prompt", "answer"))) if not hasattr(made, name)]:
        kind, other = "environment" if acts else "task", "" if acts else "; an environment has generate, reset and step"
        raise UserError(f"{task.function}: a {kind} has a method {lacking[0]}, and {type(made).__name__} has none{other}")
    return OwnWorlds(task, made, make).family() if acts else OwnQuestions(task, made, make).family()


class OwnQuestions:
    """What a user's task says, and what follows where it says nothing."""

    def __init__(self, task: OwnTask, made: Any, make: Callable[[], Any]) -> None:
        self.task, self.made, self.make = task, made, make

    def ask(self, method: str, *given: Any, default: Any = "") -> Any:
        """What a method of the user's object returns, or the default where it has no such method."""
        if not hasattr(self.made, method):
            return default
        with extension.errors_in(self.task):
            return getattr(self.made, method)(*given)

    def text(self, method: str, problem: OwnProblem, default: str = "") -> str:
        """The same of a method that returns a text."""
        return _checked_text(self.task, method, self.ask(method, problem.value, default=default))

    def generate(self, task: OwnTask, seed: int, index: int, op: int) -> OwnProblem:
        """The problem of the user's generator, which draws from a stream keyed by (seed, index, op)."""
        value = self.ask("generate", random.Random(f"{task.function} {seed} {index} {op}"), op)
        try:
            return OwnProblem(json.loads(json.dumps(value, allow_nan=False)))
        except (TypeError, ValueError) as error:
            raise UserError(f"{task.function}: generate must return a JSON value ({error})") from None

    def structure(self, problem: OwnProblem) -> str:
        """16 hex digits of what the user says; of the prompt where that is nothing."""
        said = self.ask("structure", problem.value, default=None)
        return hashlib.sha256(str(self.shown(problem) if said is None else said).encode()).hexdigest()[:16]

    def shown(self, problem: OwnProblem) -> str:
        """What distinguishes problems."""
        return self.text("prompt", problem)

    def render(self, problem: OwnProblem, task: OwnTask) -> Rendered:
        """Prompt, solution and answer; the solution is the boxed answer where the user writes none."""
        answer = str(self.ask("answer", problem.value))
        return Rendered(self.text("prompt", problem), self.text("solution", problem, f"{BOX}{answer}}}"), answer)

    def verify(self, problem: OwnProblem, completion: str, options: Verify) -> Verdict:
        """The user's verdict, true or false, or number in [0, 1], which is right at 1; without a verifier the boxed answer
        decides."""
        if not hasattr(self.made, "verify"):
            said = extract_answer(completion) if BOX in completion and not is_answer_dump(completion) else None
            error = first_error(truncated=said is None, answer=said != str(self.ask("answer", problem.value)))
            return Verdict(error == "none", error == "none", float(error == "none"), error, said=said or "")
        found = self.ask("verify", problem.value, completion)
        if isinstance(found, Verdict):
            return found
        number = extension.finite_number(found)
        if number is None or not 0 <= number <= 1:
            needed = "true, false, a number in [0, 1] or a Verdict"
            raise UserError(f"{self.task.function}: verify must return {needed}, not {found!r:.60}")
        return Verdict(number == 1, number == 1, number, "none" if number == 1 else "answer")

    def common(self) -> dict[str, Any]:
        """What tasks and environments both have."""
        solver = (lambda prompt, task, *replies: str(self.ask("solve", prompt))) if hasattr(self.made, "solve") else None
        own = {name: getattr(self, name) for name in ("generate", "structure", "render", "verify")}
        own |= {"loads": lambda text: OwnProblem(json.loads(text)), "dumps": lambda problem: compact_json(problem.value)}
        own |= {"solve": solver, "vocabulary": lambda task: self.ask("vocabulary", default=ASCII)}
        return {"name": self.task.function, **own}

    def family(self) -> Generator[OwnProblem, OwnTask]:
        """The family of all that."""
        return Generator(errors=("truncated", "answer"), **self.common())


class OwnWorlds(OwnQuestions):
    """What a user's environment says, and what follows where it says nothing. An episode is right when it is over and has paid
    the object's `target`, by default 1."""

    def world(self) -> OwnWorld:
        """A new one."""
        return OwnWorld(self.task, self.make)

    def played(self, problem: OwnProblem, turns: Sequence[str]) -> tuple[str, list[Step]]:
        """The first observation, and the steps up to the end of the episode, one at least."""
        here, steps = self.world(), list[Step]()
        first = here.reset(problem, episode_seed(compact_json(problem.value)))
        for turn in turns:
            steps.append(here.step(turn))
            if steps[-1].done:
                break
        here.close()
        return first, steps

    def expert(self, problem: OwnProblem) -> list[str]:
        """The actions of the user's expert; none where there is none."""
        return [*map(str, self.ask("expert", problem.value, default=()))]

    def state(self, problem: OwnProblem, turns: list[str]) -> str:
        """The text of the state after these turns, by replay."""
        here = self.world()
        here.reset(problem, episode_seed(compact_json(problem.value)))
        for turn in turns:
            here.step(turn)
        shown = here.state()
        here.close()
        return shown or ""

    def target(self, problem: OwnProblem) -> float:
        """What an episode has to pay to be right."""
        return float(getattr(self.made, "target", 1.0))

    def shown(self, problem: OwnProblem) -> str:
        """All of it: a state may be hidden."""
        return compact_json(problem.value)

    def render(self, problem: OwnProblem, task: OwnTask) -> Rendered:
        """The first observation, and the expert's transcript."""
        turns = self.expert(problem)
        first, steps = self.played(problem, turns)
        if len(steps) < len(turns):
            raise UserError(f"{self.task.function}: expert acts {len(turns)} times, and the episode is over after {len(steps)}")
        solution = join_turns(turns, [step.text for step in steps[:-1]]) if turns else ""
        return Rendered(first, solution, str(self.ask("answer", problem.value)))

    def verify(self, problem: OwnProblem, completion: str, options: Verify) -> Verdict:
        """The verdict on a transcript, by replay. Score: the share of the target that was paid. Errors: `truncated` (not over),
        `made_up` (an observation that is not the environment's), `answer` (too little was paid)."""
        turns = policy_turns(completion)
        _, steps = self.played(problem, turns)
        genuine = observations(completion) == [step.text for step in steps[:-1]]
        return self.settled(problem, math.fsum(step.reward or 0.0 for step in steps), steps[-1].done, turns[-1], genuine)

    def settled(self, problem: OwnProblem, paid: float, done: bool, said: str, genuine: bool = True) -> Verdict:
        """The verdict on what was paid."""
        target = self.target(problem)
        enough = paid >= target - 1e-9
        error = first_error(truncated=not done, made_up=not genuine, answer=not enough)
        score = min(max(paid / target, 0.0), 1.0) if target > 0 else float(enough)
        return Verdict(error == "none", error == "none", score, error, said=said[:80])

    def briefs(self, problem: OwnProblem) -> list[str]:
        """What each seat of an environment of several reads first, by its method `brief(problem, seat)`; else the prompt."""
        first = self.played(problem, [])[0]
        said = [self.ask("brief", problem.value, name, default=first) for name in getattr(self.made, "seats", ())]
        return [_checked_text(self.task, "brief", one) for one in said]

    def family(self) -> Environment[OwnProblem, OwnTask]:
        """The family of all that."""
        seats = tuple(getattr(self.made, "seats", ()))
        own: dict[str, Any] = {
            "expert": self.expert,
            "world": self.world,
            "reply": lambda problem, turns: self.played(problem, turns)[1][-1],
            "seat_names": seats,
            "briefs": self.briefs,
            "state": self.state if hasattr(self.made, "state") else None,
            "settled": self.settled,
            # Pay between seats is won from others, and where nothing need be paid every end is right.
            "chance": getattr(self.made, "chance", 1.0 if seats or getattr(self.made, "target", 1.0) <= 0 else 0.2),
        }
        return Environment(errors=("truncated", "made_up", "answer"), **own, **self.common())


# Text without questions: documents and chats, of which no completion is right.


class Passage(NamedTuple):
    """A document, or a chat."""

    text: str
    """Of a document."""
    messages: tuple[tuple[str, str], ...] = ()
    """Of a chat: (role, content) in order."""
    licence: str = ""
    """Its own, where the file has none for all."""


DOCUMENT, CHAT = "document", "chat"
"""Modes of rows of text."""
ASSISTANT = "assistant"


def passage_row(passage: Passage) -> tuple[str, Rendered]:
    """Mode and texts of a row: a document is a solution without a prompt, a chat a transcript whose turns are the assistant's."""
    if not passage.messages:
        return DOCUMENT, Rendered("", passage.text, "")
    pieces = chat_pieces(
        passage.messages, lambda said: "".join(f"{role}: {content}\n" for role, content in said) + f"{ASSISTANT}: "
    )
    return CHAT, Rendered(pieces[0], MARK.join(pieces[1:]), "")


def chat_pieces(messages: Sequence[tuple[str, str]], render: Callable[[Sequence[tuple[str, str]]], str]) -> list[str]:
    """A chat cut into what is read and what the assistant says, by turns. `render`: messages -> their text up to where the
    assistant begins. Raises ValueError where the text of more messages does not begin with that of fewer."""
    pieces, before = list[str](), ""
    for place, (role, content) in enumerate(messages):
        if role == ASSISTANT:
            context = render(messages[:place])
            if not context.startswith(before):
                raise ValueError(f"message {place + 1}: the template alters the messages before it")
            pieces += [context[len(before) :], content]
            before = context + content
    return pieces


def dumps(passage: Passage) -> str:
    """What the gold column of a row holds: the messages, and the row's own licence; not the text of a document, which is the
    solution."""
    return compact_json(passage._replace(text="")._asdict())


TEXT = Family(
    name="text", errors=("truncated",), loads=from_json(Passage), verify=lambda passage, completion, options: UNANSWERED
)
