"""The gold of a problem about people."""

import json
from typing import Literal, NamedTuple

from interplay.tasks.facts import Fact

Surface = Literal["terse", "prose"]


class Problem(NamedTuple):
    """A question with the facts that lead to its answer."""

    mode: str
    """The level: statement, parametric, contextual, reading, iid, composition, zero_shot, in_context or by_heart."""
    surface: Surface
    form: int
    """prose: how the first fact of the context reads; the next ones follow by turns."""
    hops: tuple[Fact, ...]
    """From the person that the question names to the answer: the object of each is the subject of the next. Of mode reading, the
    facts that are asked for, in order, each by a question of its own."""
    context: tuple[Fact, ...]
    """The facts of the prompt, in order, those of a person together. Hops that are not among them are parametric."""

    @property
    def op(self) -> int:
        """Hops, or facts that are asked for."""
        return len(self.hops)

    @property
    def answer(self) -> str:
        """Where the chain ends; the answer to the last question."""
        return self.hops[-1].object


def dumps(problem: Problem) -> str:
    """JSON, one line."""
    return json.dumps(problem, separators=(",", ":"))


def loads(text: str) -> Problem:
    """The problem that `dumps` wrote."""
    mode, surface, form, hops, context = json.loads(text)
    return Problem(mode, surface, form, tuple(Fact(*fact) for fact in hops), tuple(Fact(*fact) for fact in context))
