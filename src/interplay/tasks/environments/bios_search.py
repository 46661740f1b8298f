r"""Search in a dictionary of people. The prompt is a question of bios, `Who is the boss of the mother of Ada?`; the policy writes
`look(Ada)`, reads all that is known of Ada, `Ada's mother is Bea. Ada's city is Rom.`, and boxes the end of the chain."""

import re

from interplay.core.random import stream_key
from interplay.tasks.bios import family as bios
from interplay.tasks.bios.generate import Problem, dumps, loads, shared
from interplay.tasks.bios.text import ASKED, QUESTION, question, sentence, sentences
from interplay.tasks.environments.games import Rendered, Replies, Reply, ended, transcript, worth
from interplay.tasks.environments.spec import BiosSearch
from interplay.tasks.spec import Verify
from interplay.tasks.verdict import BOX, Verdict

CALL = re.compile(r"\s*look\((\w{1,40})\)\s*")
BROKEN, NOBODY = "error\n", "nothing\n"

__all__ = [
    "Problem", "Rendered", "alphabet", "dumps", "expert", "generate", "loads", "render", "reply", "shared", "solve", "structure",
    "verify", "vocabulary",
]  # fmt: skip


def generate(task: BiosSearch, seed: int, index: int, op: int) -> Problem:
    """A chain of `op` facts among others, as bios has it at level in_context."""
    return bios.generate(task.bios, seed, index, op)


def reply(problem: Problem, said: list[str]) -> Reply:
    """The facts about who is looked up, in the order of the context; a box ends the episode."""
    if ended(said[-1]):
        return Reply("", True)
    call = CALL.fullmatch(said[-1])
    if not call:
        return Reply(BROKEN, False)
    found = [
        sentence(fact, problem.surface, problem.form + n) for n, fact in enumerate(problem.context) if fact.subject == call[1]
    ]
    return Reply(f"{' '.join(found)}\n" if found else NOBODY, False)


def expert(problem: Problem) -> list[str]:
    """The turns of whoever looks everybody of the chain up, once each."""
    looked = dict.fromkeys(hop.subject for hop in problem.hops)
    return [*(f"look({name})" for name in looked), f"{BOX}{problem.answer}}}"]


def render(problem: Problem, task: BiosSearch) -> Rendered:
    """The bare question, the expert's transcript, the answer."""
    told = transcript(expert(problem), lambda said: reply(problem, said))
    return Rendered(question(problem).removesuffix("?") + ASKED, told, problem.answer)


def solve(prompt: str, task: BiosSearch, ask: Replies) -> str:
    """The answer by looking up, knowing nothing but the prompt. Raises ValueError where it is no prompt, or the dictionary
    lacks a fact."""
    asked = QUESTION.fullmatch(prompt)
    if asked is None:
        raise ValueError(f"not a prompt of bios_search: {prompt!r}")
    here, turns = asked[2], []
    for relation in reversed(asked[1].removeprefix("the ").removesuffix(" of ").split(" of the ")):
        turns.append(f"look({here})")
        found = [fact.object for fact in sentences(ask(turns).text) or [] if fact[:2] == (here, relation)]
        if not found:
            raise ValueError(f"nothing says what the {relation} of {here} is")
        here = found[0]
    return here


def verify(problem: Problem, completion: str, options: Verify) -> Verdict:
    """Right: the last turn boxes the end of the chain; found out is the share of its people that were looked up. See
    tasks.environments.games.worth."""

    def earned(turns: list[str]) -> float:
        looked = {call[1] for turn in turns if (call := CALL.fullmatch(turn))}
        needed = {hop.subject for hop in problem.hops}
        return len(needed & looked) / len(needed)

    return worth(completion, lambda said: reply(problem, said), problem.answer, earned)


def structure(problem: Problem) -> str:
    """16 hex digits, as bios has it, but never those of a problem of bios."""
    return f"{stream_key('bios_search', bios.structure(problem)):016x}"


def alphabet(task: BiosSearch) -> str:
    """All characters of the task, in a fixed order."""
    return "".join(sorted(set("".join(vocabulary(task)))))


def vocabulary(task: BiosSearch) -> list[str]:
    """The pieces of a tokenizer of words."""
    return [*bios.vocabulary(task.bios), "look(", ")", " ", "\n", BROKEN, NOBODY]
