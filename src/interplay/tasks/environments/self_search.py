r"""Search in one's own memory (SSRL, arXiv:2508.10874). The prompt is a question of bios about facts that are known by heart; the
solution is one text, `look(Ada)Ada's boss is Bea. Ada's city is Rom.`, a line for each look-up, then `\boxed{Bea}`. Read turn by
turn, the same text is an episode with a dictionary that gives what is found (as bios_search has it), so that a model which
writes both sides can be given the real one. The dictionary holds all that is known of the people whom the question passes."""

import re

from interplay.core.random import stream_key
from interplay.tasks.bios import family as bios
from interplay.tasks.bios.generate import Problem, dumps, loads, shared
from interplay.tasks.bios.text import ASKED, question, sentences
from interplay.tasks.bios.world import world
from interplay.tasks.environments.bios_search import BROKEN, NOBODY, expert, reply, solve
from interplay.tasks.environments.games import MARK, Rendered, transcript
from interplay.tasks.environments.spec import SelfSearch
from interplay.tasks.facts import Fact, judge
from interplay.tasks.spec import Verify
from interplay.tasks.verdict import Verdict

CALL = re.compile(rf"look\(\w{{1,40}}\)(?:{NOBODY}|{BROKEN})?")
"""A look-up that finds facts, which stay, or none."""
FORM = re.compile(r"(?:look\(\w{1,40}\)[^\n]+\n)+\\boxed\{[^{}\n]*\}")
"""Look-ups, each with what is found, then the answer."""

__all__ = [
    "Problem", "Rendered", "alphabet", "dumps", "expert", "generate", "loads", "render", "reply", "shared", "solve", "structure",
    "verify", "vocabulary",
]  # fmt: skip


def generate(task: SelfSearch, seed: int, index: int, op: int) -> Problem:
    """A chain of `op` facts known by heart; the context is the dictionary."""
    problem, known = bios.generate(task.bios, seed, index, op), world(task.bios).facts
    people = {hop.subject for hop in problem.hops}
    return problem._replace(context=tuple(Fact(*about, there) for about, there in known.items() if about[0] in people))


def render(problem: Problem, task: SelfSearch) -> Rendered:
    """The bare question, the expert's look-ups with what they find as one text, the answer."""
    told = transcript(expert(problem), lambda said: reply(problem, said))
    return Rendered(question(problem).removesuffix("?") + ASKED, told.replace(MARK, ""), problem.answer)


def verify(problem: Problem, completion: str, options: Verify) -> Verdict:
    """A completion, or the transcript of an episode. What is found is judged as the steps of bios are (tasks.facts.judge),
    whoever wrote it; an answer in another form than look-ups with something found behind each, then the box, has the error
    `format`."""
    text = completion.replace(MARK, "")
    verdict = judge(problem.hops, problem.context, text, lambda told: sentences(CALL.sub(" ", told)), options)
    if verdict.error == "truncated" or FORM.fullmatch(text.strip()):
        return verdict
    return verdict._replace(strict=False, error="format")


def structure(problem: Problem) -> str:
    """16 hex digits, as bios has it without the dictionary, but never those of a problem of bios."""
    return f"{stream_key('self_search', bios.structure(problem._replace(context=()))):016x}"


def alphabet(task: SelfSearch) -> str:
    """All characters of the task, in a fixed order."""
    return "".join(sorted(set("".join(vocabulary(task)))))


def vocabulary(task: SelfSearch) -> list[str]:
    """The pieces of a tokenizer of words."""
    return [*bios.vocabulary(task.bios), "look(", ")", " ", "\n", BROKEN, NOBODY]
