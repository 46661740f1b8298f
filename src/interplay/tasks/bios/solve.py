"""A solver that reads nothing but the prompt and the parametric facts: the oracle beside the generator."""

from interplay.schema.bios import Bios
from interplay.tasks.bios.text import QUESTION, STUB, sentences
from interplay.tasks.bios.world import world
from interplay.tasks.facts import walk


def solve(prompt: str, task: Bios) -> str:
    """The answer to a prompt, of several questions to the last. Raises ValueError where it is no prompt of the task, or says two
    things."""
    facts = world(task).facts
    if stub := STUB.fullmatch(prompt):
        subject, relation, other, person = stub.groups()
        return walk(subject or person, [relation or other], facts)
    questions = [*QUESTION.finditer(prompt)]
    told = sentences(prompt[: questions[0].start()]) if questions else None
    if told is None:
        raise ValueError(f"not a prompt of bios: {prompt!r}")
    context = {fact[:2]: fact.object for fact in told}
    if len(context) < len(set(told)):
        raise ValueError(f"the context contradicts itself: {prompt!r}")
    asked = questions[-1]
    links = asked[1].removeprefix("the ").removesuffix(" of ").split(" of the ")
    return walk(asked[2], links[::-1], context, facts)
