r"""Searching a dictionary of people, for questions of bios.

`bios_search`: the prompt is a question, `Who is the boss of the mother of Ada?`; the policy writes `look(Ada)`, reads all facts
about Ada, `Ada's mother is Bea. Ada's city is Rom.`, and boxes the end of the chain.

`self_search`: searching one's own memory (SSRL, arXiv:2508.10874). The question is about memorised facts; the solution is one
text, `look(Ada)Ada's boss is Bea. Ada's city is Rom.`, a line for each look-up, then `\boxed{Bea}`. Read turn by turn, the same
text is an episode of bios_search, so that a model that writes both sides can be given the real dictionary, which holds all facts
about the people on the question's chain."""

import re
from dataclasses import replace

from interplay.core.random import stream_key
from interplay.tasks import family, spec, transcripts
from interplay.tasks.environments.spec import BiosSearch, SelfSearch
from interplay.tasks.facts import chains, people, questions
from interplay.tasks.verdict import BOX, Verdict

CALL = re.compile(r"\s*look\((\w{1,40})\)\s*")
NOTHING_FOUND = "nothing\n"


def look(problem: people.Problem, name: str) -> str:
    """The facts about a person, in the order of the context."""
    each = zip(problem.context, questions.context_sentences(problem), strict=True)
    facts = [text for fact, text in each if fact.subject == name]
    return f"{' '.join(facts)}\n" if facts else NOTHING_FOUND


def expert(problem: people.Problem) -> list[str]:
    """The expert's turns: one look-up for each person of the chain, then the answer."""
    return [*(f"look({name})" for name in dict.fromkeys(hop.subject for hop in problem.hops)), f"{BOX}{problem.answer}}}"]


def solve(prompt: str, task: BiosSearch | SelfSearch, replies: family.Replies) -> str:
    """The answer by look-ups, from the prompt and the replies alone. Raises ValueError where it is no prompt, or the dictionary
    lacks a fact."""
    asked = questions.QUESTION.fullmatch(prompt)
    if asked is None:
        raise ValueError(f"not a prompt of {task.name}: {prompt!r}")
    here, turns = asked[2], []
    for relation in questions.asked_relations(asked):
        turns.append(f"look({here})")
        found = [fact.object for fact in questions.sentences(replies(turns).text) or [] if fact[:2] == (here, relation)]
        if not found:
            raise ValueError(f"no fact about {relation!r} of {here}")
        here = found[0]
    return here


def found_share(problem: people.Problem, turns: list[str]) -> float:
    """The share of the chain's people that were looked up."""
    looked = {call[1] for turn in turns if (call := CALL.fullmatch(turn))}
    needed = {hop.subject for hop in problem.hops}
    return len(needed & looked) / len(needed)


BIOS_SEARCH = transcripts.tool_environment(
    CALL,
    look,
    prompt=lambda problem: questions.question(problem).removesuffix("?") + questions.ASKED,
    answer=lambda problem: problem.answer,
    found_share=found_share,
    name="bios_search",
    generate=lambda task, seed, index, op: questions.BIOS.generate(task.bios, seed, index, op),
    solve=solve,
    loads=questions.BIOS.loads,
    # Never a key of bios itself.
    structure=lambda problem: f"{stream_key('bios_search', questions.BIOS.structure(problem)):016x}",
    shared=questions.BIOS.shared,
    vocabulary=lambda task: [*questions.BIOS.vocabulary(task.bios), "look(", ")", " ", "\n", transcripts.BROKEN, NOTHING_FOUND],
    expert=expert,
)

# Search in memory.


FOUND = re.compile(rf"look\(\w{{1,40}}\)(?:{NOTHING_FOUND}|{transcripts.BROKEN})?")
"""A look-up, and its result where it finds no facts."""
FORM = re.compile(r"(?:look\(\w{1,40}\)[^\n]+\n)+\\boxed\{[^{}\n]*\}")
"""Look-ups, each with what is found, then the answer."""


def generate_memory(task: SelfSearch, seed: int, index: int, op: int) -> people.Problem:
    """A chain of `op` memorised facts; the context is the dictionary."""
    problem, known = questions.BIOS.generate(task.bios, seed, index, op), people.world(task.bios).facts
    subjects = {hop.subject for hop in problem.hops}
    return problem._replace(context=tuple(chains.Fact(*about, there) for about, there in known.items() if about[0] in subjects))


def render_memory(problem: people.Problem, task: SelfSearch) -> family.Rendered:
    """The question without context, the expert's look-ups and what they find as one text, the answer."""
    shown = BIOS_SEARCH.render(problem, task)
    return shown._replace(solution=shown.solution.replace(transcripts.MARK, ""))


def verify_memory(problem: people.Problem, completion: str, options: spec.Verify) -> Verdict:
    """The verdict on a completion, or on the transcript of an episode. The facts found are judged as the steps of bios are
    (tasks.facts.chains.judge), by model or environment. Error `format`: an answer that is not look-ups, each with a result, and
    then the box."""
    text = completion.replace(transcripts.MARK, "")
    verdict = chains.judge(problem.hops, problem.context, text, lambda part: questions.sentences(FOUND.sub(" ", part)), options)
    if verdict.error == "truncated" or FORM.fullmatch(text.strip()):
        return verdict
    return verdict._replace(strict=False, error="format")


SELF_SEARCH = replace(
    BIOS_SEARCH,
    name="self_search",
    errors=(*chains.ERRORS, "format"),
    generate=generate_memory,
    render=render_memory,
    verify=verify_memory,
    structure=lambda problem: f"{stream_key('self_search', questions.BIOS.structure(problem._replace(context=()))):016x}",
)
