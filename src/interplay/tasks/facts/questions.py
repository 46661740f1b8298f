r"""The text of bios: facts, questions and solutions, their parser, verifier and solver; conflicts: the same questions with a
context that contradicts a memorised fact or is irrelevant to it (KnowPO, arXiv:2408.03297); and biographies by heart (Capo)."""

import json
import re
from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

from interplay.core.random import Draw, stream, stream_key
from interplay.tasks import multihop, spec
from interplay.tasks.facts import chains
from interplay.tasks.facts.people import Problem, Surface, generate, structure, world
from interplay.tasks.facts.spec import ATTRIBUTES, Bios, Capo
from interplay.tasks.family import Family, Generator, Item, Paragraph, Rates, Rendered, Table, compact_json, from_json
from interplay.tasks.skills import Asked, drawn_distinct, render_asked
from interplay.tasks.verdict import BOX, Verdict, first_error

# Text of facts and questions, and its parser.
#
# Pieces of the vocabulary are cut so that a name is a piece of its own, without a blank: `Ada`, `'s boss is `, `Bea`, `. `. A
# question is `Who is the boss of the mother of Ada?`; a solution states each fact and boxes the answer: `Ada's mother is Bea.
# Bea's boss is Cid. \boxed{Cid}`. Several questions follow each other on one line.


ASKED = "?\n"
"""Ends a prompt."""
SENTENCE = re.compile(r"\s*(?:(\w+)'s (\w+) is (\w+)|The (\w+) of (\w+) is (\w+)|(\w+) is the (\w+) of (\w+))\.")
QUESTION = re.compile(r"(?:Who|What) is ((?:the \w+ of )+)(\w+)\?(?: (?=Wh)|\n)")
STUB = re.compile(r"(?:(\w+)'s (\w+)|The (\w+) of (\w+)) is ")


def sentence(fact: chains.Fact, surface: Surface, form: int) -> str:
    """A fact in one of the forms of its surface; terse has one."""
    subject, relation, there = fact
    if surface == "prose" and form % 3 == 1:
        return f"The {relation} of {subject} is {there}."
    if surface == "prose" and form % 3 == 2:
        return f"{there} is the {relation} of {subject}."
    return f"{subject}'s {relation} is {there}."


def step(fact: chains.Fact) -> str:
    """A fact as solutions state it."""
    return sentence(fact, "terse", 0)


def question(problem: Problem) -> str:
    """The question about the end of the chain; of mode reading, the questions about each fact."""
    return " ".join(_question([hop]) for hop in problem.hops) if problem.mode == "reading" else _question(problem.hops)


def _question(hops: Sequence[chains.Fact]) -> str:
    links = "".join(f"the {hop.relation} of " for hop in reversed(hops))
    return f"{'What' if hops[-1].relation in ATTRIBUTES else 'Who'} is {links}{hops[0].subject}?"


def stub(problem: Problem) -> str:
    """The prompt of a statement: the fact up to its object. A form that begins with the object is replaced by the first form."""
    (fact,) = problem.hops
    form = problem.form if problem.form % 3 < 2 else 0
    return sentence(fact, problem.surface, form).removesuffix(f"{fact.object}.")


def sentences(text: str) -> list[chains.Fact] | None:
    """The facts that a text states, in order; None where it has anything else."""
    return chains.parse_facts(text, SENTENCE, _fact_of)


def _fact_of(match: re.Match[str]) -> chains.Fact:
    a, r, b, r1, a1, b1, b2, r2, a2 = match.groups()
    return chains.Fact(a or a1 or a2, r or r1 or r2, b or b1 or b2)


def vocabulary(task: Bios) -> list[str]:
    """The pieces of a tokenizer of words, whichever relations are parametric or held out. Problems of in_context can become
    multi-hop problems, so that level includes their pieces."""
    known = world(task)
    names = [*known.people, *(value for values in known.values.values() for value in values)]
    frame = ["Who is ", "What is ", ASKED, "?", ". ", ".", BOX, "}", *(["? "] if task.level == "reading" else [])]
    relations = [piece for name in task.all_relations() for piece in (f"'s {name} is ", f"the {name} of ")]
    if task.surface == "prose":
        relations += [piece for name in task.all_relations() for piece in (f"The {name} of ", f" is the {name} of ")] + [" is "]
    return [*frame, *relations, *names, *(multihop.terse_pieces() if task.level == "in_context" else [])]


def written(problem: Problem) -> Rendered:
    """Prompt, gold solution and answer of a problem, on its own surface."""
    answer = problem.answer
    if problem.mode == "statement":
        return Rendered(stub(problem), f"{answer}.", answer)
    shown = [*context_sentences(problem), question(problem).removesuffix("?") + ASKED]
    steps = [*map(step, problem.hops), f"{BOX}{answer}}}"]
    return Rendered(" ".join(shown), " ".join(steps), answer)


def context_sentences(problem: Problem) -> list[str]:
    """The sentences of the context, in order."""
    return [sentence(fact, problem.surface, problem.form + number) for number, fact in enumerate(problem.context)]


def item(problem: Problem) -> Item | None:
    """The question with a document for each person of the context; None where the context lacks a fact that the answer needs,
    or there is more than one question."""
    if problem.mode == "reading" or not problem.context or not set(problem.hops) <= set(problem.context):
        return None
    titles = list(dict.fromkeys(fact.subject for fact in problem.context))
    texts: dict[str, list[str]] = {title: [] for title in titles}
    places = {}
    for fact, text in zip(problem.context, context_sentences(problem), strict=True):
        places[fact] = (titles.index(fact.subject), len(texts[fact.subject]))
        texts[fact.subject].append(text)
    return Item(
        id=f"bios-{stream_key('bios', compact_json(problem)):016x}",
        question=question(problem),
        answers=(problem.answer,),
        paragraphs=tuple(Paragraph(title, tuple(texts[title])) for title in titles),
        supporting=tuple(places[hop] for hop in problem.hops),
        hops=problem.op,
        type=problem.mode,
        steps=tuple(map(step, problem.hops)),
    )


def tables(problem: Problem) -> tuple[Table, ...]:
    """The facts of the context, and with them those that the answer needs."""
    return (Table("facts", chains.Fact._fields, tuple(dict.fromkeys([*problem.context, *problem.hops]))),)


def calls(problem: Problem) -> dict[str, list[str]]:
    """A query for each hop."""
    asked = "SELECT object FROM facts WHERE subject = '{}' AND relation = '{}'"
    return {"sql": [asked.format(*hop[:2]) for hop in problem.hops]}


def verify(problem: Problem, completion: str, options: spec.Verify) -> Verdict:
    """The verdict on any text as a solution (tasks.facts.chains.judge)."""
    if problem.mode == "statement":
        return chains.judge_statement(problem.answer, completion)
    return chains.judge(problem.hops, problem.context, completion, sentences, options)


# A solver that reads the prompt and the parametric facts only: the oracle for the generator.


def asked_relations(question: re.Match[str]) -> list[str]:
    """The relations of a match of QUESTION, from the first hop to the last."""
    return question[1].removeprefix("the ").removesuffix(" of ").split(" of the ")[::-1]


def solve(prompt: str, task: Bios) -> str:
    """The answer to the (last) question of a prompt. Raises ValueError where it is no prompt of the task, or contradicts
    itself."""
    facts = world(task).facts
    if stub := STUB.fullmatch(prompt):
        subject, relation, other, person = stub.groups()
        return chains.walk(subject or person, [relation or other], facts)
    questions = [*QUESTION.finditer(prompt)]
    stated = sentences(prompt[: questions[0].start()]) if questions else None
    if stated is None:
        raise ValueError(f"not a prompt of bios: {prompt!r}")
    context = {fact[:2]: fact.object for fact in stated}
    if len(context) < len(set(stated)):
        raise ValueError(f"the context contradicts itself: {prompt!r}")
    asked = questions[-1]
    return chains.walk(asked[2], asked_relations(asked), context, facts)


BIOS = Generator(
    name="bios",
    errors=chains.ERRORS,
    generate=generate,
    render=lambda problem, task: written(problem),
    solve=solve,
    loads=from_json(Problem),
    verify=verify,
    structure=structure,
    shared=lambda problem: problem.mode in ("statement", "parametric"),  # facts to be memorised, and questions about one
    vocabulary=vocabulary,
    item=item,
    tables=tables,
    calls=calls,
    rates=Rates(2200, 28000, 120, 185),
)


# Conflicts: `Bea's boss is Cid. Ada's boss is Dov. Who is the boss of Ada?` where Ada's boss is known to be Eva. The gold answer
# is the context's value where it has one, else the memorised one.


CONTRADICTING, IRRELEVANT = "contradicting", "irrelevant"
IGNORANCE, OVER_INCLUSION = "ignorance", "over_inclusion"


class Conflict(NamedTuple):
    """A question with its context, and the memorised fact."""

    problem: Problem
    """One hop, whose object is the gold answer, and the facts of the context."""
    known: chains.Fact
    """The fact of pre-training about the same person and relation."""

    @property
    def mode(self) -> str:
        """contradicting or irrelevant."""
        return IRRELEVANT if self.problem.hops[0] == self.known else CONTRADICTING


def dumps_conflict(conflict: Conflict) -> str:
    """JSON, one line."""
    return compact_json([BIOS.dumps(conflict.problem), conflict.known])


def loads_conflict(text: str) -> Conflict:
    """The inverse of `dumps_conflict`."""
    problem, known = json.loads(text)
    return Conflict(BIOS.loads(problem), chains.Fact(*known))


def verify_conflict(conflict: Conflict, completion: str, options: spec.Verify) -> Verdict:
    """The verdict of bios; the error of a wrong answer names its source: `ignorance` is the memorised value against the context,
    `over_inclusion` the value of another fact of the context."""
    verdict = BIOS.verify(conflict.problem, completion, options)
    if verdict.answer or not verdict.said:
        return verdict
    if verdict.said == conflict.known.object:
        return verdict._replace(error=IGNORANCE)
    if verdict.said in {fact.object for fact in conflict.problem.context}:
        return verdict._replace(error=OVER_INCLUSION)
    return verdict


def structure_conflict(conflict: Conflict) -> str:
    """16 hex digits, equal for conflicts over one memorised fact whose contexts are equal up to names."""
    return f"{stream_key('conflicts', *conflict.known, BIOS.structure(conflict.problem)):016x}"


CONFLICTS = Family(
    name="conflicts", errors=(*chains.ERRORS, IGNORANCE, OVER_INCLUSION), loads=loads_conflict, verify=verify_conflict
)


# Capo: a biography, by heart. `@f017i003l250=m05d03y150;hc020;u299;j05;w012;e262.`: name, day of birth, pronoun and city of
# birth, university, major, city of work, employer. Of Physics of Language Models: Part 4.1 (Allen-Zhu, arXiv:2512.17351), after
# the released generator: facebookresearch/PhysicsLM4 at 7580696, data-synthetic-pretrain/Capo-bioS-bioR/Capo-bioS-bioR.py lines
# 95-432. As there: how many values the fields have, and their order. Other than there: values are letters with numbers, each
# sentence has one wording, of 46 to 52 there, and streams are keyed by the problem.
#
# Bits per parameter (arXiv:2404.05405) are to be had from `nll` of op 7, t tokens with the end of sequence:
# people * (log2 of the product of names and values and 2 pronouns - nll * t / ln 2) / parameters.


@cache
def names_of(world: int, people: int, names: tuple[int, ...]) -> list[str]:
    """The name of each person, all different."""
    draw = stream("capo", "names", world, people, *names)
    return drawn_distinct(people, lambda: _numbered("fil", names, draw))


def _numbered(letters: str, counts: Sequence[int], draw: Draw) -> str:
    return "".join(_one_of(letter, draw() % count, count) for letter, count in zip(letters, counts, strict=True))


def _one_of(letter: str, number: int, count: int) -> str:
    """A value; all values of a field are of one length."""
    return f"{letter}{number:0{len(str(count - 1))}d}"


def generate_capo(task: Capo, seed: int, index: int, op: int) -> Asked:
    """The biography of person `index` modulo their number, of which the last op parts are asked for."""
    person = index % task.people
    draw = stream("capo", task.world, person, *task.values)
    *counts, employers = task.values
    born = _numbered("mdy", counts[:3], draw)
    city, university, major = (_numbered(letter, [count], draw) for letter, count in zip("cuj", counts[3:], strict=True))
    pronoun, employer, places = "hs"[draw() % 2], draw() % employers, max(1, employers // 2)
    work = _one_of("w", stream_key("capo", "work", task.world, employer) % places, places)
    reported = [born, pronoun + city, university, major, work]
    name = names_of(task.world, task.people, task.names)[person]
    parts = ["@", f"{name}=", *(f"{part};" for part in reported), f"{_one_of('e', employer, employers)}."]
    return Asked("capo", "".join(parts[:-op]), "".join(parts[-op:]))


def verify_capo(problem: Asked, completion: str, options: spec.Verify) -> Verdict:
    """Right is the rest of the biography; the score is the share of its parts that are right, in their places. Errors:
    `truncated` (no stop at the end), `answer`."""
    said = completion.strip()
    gold, parts = (re.split("[=;]", text) for text in (problem.answer, said))
    hits = sum(one == other for one, other in zip(gold, parts, strict=False))
    error = first_error(truncated=not said.endswith("."), answer=said != problem.answer)
    return Verdict(error == "none", error == "none", hits / max(len(gold), len(parts)), error, said=said[:80])


def vocabulary_of_capo(task: Capo) -> list[str]:
    """Signs, pronouns, and each value as one piece."""
    employers = task.values[-1]
    counts = zip("filmdycujew", (*task.names, *task.values, max(1, employers // 2)), strict=True)
    return [*"@=;.hs", *(_one_of(letter, number, count) for letter, count in counts for number in range(count))]


CAPO = Generator(
    name="capo",
    errors=("truncated", "answer"),
    loads=from_json(Asked),
    verify=verify_capo,
    generate=generate_capo,
    render=render_asked,
    solve=None,
    structure=lambda problem: f"{stream_key(problem.prompt, problem.answer):016x}",
    vocabulary=vocabulary_of_capo,
    shared=lambda problem: True,
)
