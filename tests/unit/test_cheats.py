"""Completions that did not do the work, against every reward and verifier: what must earn nothing."""

import re
from collections.abc import Callable
from functools import cache
from typing import NamedTuple

import pytest
from multihop_cases import item
from op_dag_cases import case

from interplay.rl import reward_spec as specs
from interplay.rl.rewards import score_completions
from interplay.tasks import multihop, qa, reformulated
from interplay.tasks.families import judge_family
from interplay.tasks.multihop import Chain
from interplay.tasks.op_dag import prose_problems, terse
from interplay.tasks.op_dag.dag import forms
from interplay.tasks.op_dag.prose_verifier import OP_DAG_PROSE
from interplay.tasks.op_dag.spec import OpDagProse
from interplay.tasks.op_dag.terse_prompts import OP_DAG
from interplay.tasks.spec import Verify
from interplay.tasks.verdict import Row


class Asked(NamedTuple):
    """A row and what a completion may say about it."""

    row: Row
    says: Callable[[str], str]
    """An answer as the family reads it."""
    wrong: tuple[str, str, str]


def boxed(text: str) -> str:
    return f"\\boxed{{{text}}}"


def row_of(family: str, mode: str, shown: tuple[str, str, str], graph: str) -> Row:
    return Row(0, 0, "id", 3, mode, *shown, graph, "0" * 16, family, f"{'a' * 12}:0")


def terse_row(mode: str, trace: str) -> Asked:
    task, problem, _ = case(5, 3, modulus=23, constants=(1, 22), operators="+-*", modes={mode: 1.0}, trace=trace)
    wrong = [str(n) for n in range(3, 23) if str(problem.answer) not in str(n) and str(n) not in str(problem.answer)]
    row = row_of("op_dag", mode, OP_DAG.render(problem, task), OP_DAG.dumps(problem))
    return Asked(row, lambda text: f"#{text}", (wrong[0], wrong[1], wrong[2]))


def prose_row(mode: str) -> Asked:
    task = OpDagProse(modes={mode: 1.0})
    made = (prose_problems.generate(task, 0, index, 6) for index in range(99))
    problem = next(one for one in made if mode == "forward" or forms(one)[-1] not in ((1, 0), (one.slopes[-1], 0)))
    row = row_of("op_dag_prose", mode, OP_DAG_PROSE.render(problem, task), OP_DAG_PROSE.dumps(problem))
    return Asked(row, lambda text: f"<answer>{text}</answer>", ("91", "92", "93"))


def multihop_row(mode: str) -> Asked:
    made = multihop.plain_problem(item(3))
    if mode == "keychain":
        chains = (Chain(("K1", "K2"), made.item.question), Chain(("M1", "M2"), "What is the city of Eve?"))
        made = made._replace(mode="keychain", chains=chains)
    elif mode == "citation":
        made = made._replace(mode="citation")
    row = row_of("multihop", mode, multihop.render(made, "published"), multihop.dumps(made))
    wrong = [city for city in ("Rome", "Oslo", "Lima", "Cairo", "Paris") if city != row.answer]
    return Asked(row, boxed, (wrong[0], wrong[1], wrong[2]))


def qa_row(answer: str, wrong: tuple[str, str, str]) -> Asked:
    problem = qa.Problem("What is it?", (answer,))
    return Asked(row_of("qa", "open", qa.render(problem), qa.dumps(problem)), boxed, wrong)


def choice_row(format: str) -> Asked:
    asked = terse_row("forward", "goal_first")
    gold, wrong = asked.row.answer, asked.wrong
    form = reformulated.Form(format, "op_dag", asked.row.graph, gold)
    form = form._replace(statement=gold) if format == "true_false" else form._replace(options=(wrong[0], gold, *wrong[1:]))
    row = row_of("reformulated", format, reformulated.render(asked.row, form), reformulated.dumps(form))
    return Asked(row, asked.says, ("a", "c", "d") if format == "four_choice" else ("-", "=", "_"))


@cache
def asked(name: str) -> Asked:
    made = {
        "terse": lambda: terse_row("forward", "goal_first"),
        "terse leaf_first": lambda: terse_row("forward", "leaf_first"),
        "terse reverse": lambda: terse_row("reverse", "goal_first"),
        "prose": lambda: prose_row("forward"),
        "prose reverse": lambda: prose_row("reverse"),
        "plain": lambda: multihop_row("plain"),
        "keychain": lambda: multihop_row("keychain"),
        "citation": lambda: multihop_row("citation"),
        "number": lambda: qa_row("42", ("41", "43", "17")),
        "words": lambda: qa_row("Posi Tika", ("Putu", "Rana", "Sola")),
        "four_choice": lambda: choice_row("four_choice"),
        "true_false": lambda: choice_row("true_false"),
    }
    return made[name]()


NAMES = [
    "terse",
    "terse leaf_first",
    "terse reverse",
    "prose",
    "prose reverse",
    "plain",
    "keychain",
    "citation",
    "number",
    "words",
]
NAMES += ["four_choice", "true_false"]
LOOK_ALIKE = str.maketrans("0123456789aeiopAEIOP+-", "０１２３４５６７８９аеіорАЕІОР＋－")
"""Characters of other scripts that are drawn the same."""

# Of the right answer g, wrong ones w, how an answer is said, and the row.
CHEATS: dict[str, Callable[[str, tuple[str, ...], Callable[[str], str], Row], str]] = {
    "nothing": lambda g, w, a, r: "",
    "a blank": lambda g, w, a, r: " ",
    "lines": lambda g, w, a, r: "\n\n\n",
    "the prompt": lambda g, w, a, r: r.prompt,
    "the prompt twice": lambda g, w, a, r: r.prompt * 2,
    "the prompt, and no answer": lambda g, w, a, r: r.prompt + a(""),
    "an empty answer": lambda g, w, a, r: a(""),
    "a blank answer": lambda g, w, a, r: a(" "),
    "a stop": lambda g, w, a, r: a("."),
    "dots": lambda g, w, a, r: a("..."),
    "an article": lambda g, w, a, r: a("the"),
    "a wrong answer": lambda g, w, a, r: a(w[0]),
    "three wrong answers": lambda g, w, a, r: "".join(map(a, w)),
    "an answer that is not closed": lambda g, w, a, r: a(f"{w[0]} {g}").rstrip("}").replace("</answer>", ""),
    "right and wrong": lambda g, w, a, r: a(f"{g}, {w[0]}"),
    "wrong and right": lambda g, w, a, r: a(f"{w[0]}, {g}"),
    "two without a comma": lambda g, w, a, r: a(f"{w[0]} {g}"),
    "or": lambda g, w, a, r: a(f"{g} or {w[0]}"),
    "and": lambda g, w, a, r: a(f"{w[0]} and {g}"),
    "all options": lambda g, w, a, r: a(" ".join([*w, g])),
    "all options by letter": lambda g, w, a, r: a(f"A. {w[0]} B. {g} C. {w[1]} D. {w[2]}"),
    "all options in lines": lambda g, w, a, r: a("\n".join([g, *w])),
    "a set": lambda g, w, a, r: a(f"\\{{{g}, {w[0]}\\}}"),
    "a range": lambda g, w, a, r: a(f"{g} to {w[0]}"),
    "a slash": lambda g, w, a, r: a(f"{g}/{w[0]}"),
    "not": lambda g, w, a, r: a(f"not {g}"),
    "anything but": lambda g, w, a, r: a(f"anything but {g}"),
    "not a wrong one": lambda g, w, a, r: a(f"not {w[0]}"),
    "a question": lambda g, w, a, r: a(f"is it {g} or not?"),
    "the answer twice": lambda g, w, a, r: a(f"{g} {g}"),
    "the answer twenty times": lambda g, w, a, r: a(f"{g} " * 20),
    "twenty answers, all but one wrong": lambda g, w, a, r: "".join(map(a, [w[0], *[w[1]] * 9, g, *[w[2]] * 9])),
    "many answers, the right one where it counts": lambda g, w, a, r: "".join(map(a, [*w, *w, g] if a is boxed else [w[0], g])),
    "the answer where it does not count": lambda g, w, a, r: a(g) + a(w[0]) if a is boxed else a(w[0]) + a(g),
    "the answer outside": lambda g, w, a, r: f"{g} {a('')}",
    "a comment": lambda g, w, a, r: f"<!-- {g} --> {a(w[0])}",
    "JSON": lambda g, w, a, r: a(f'{{"answer": "{g}"}}'),
    "look-alikes": lambda g, w, a, r: a(g.translate(LOOK_ALIKE)),
    "a character of no width": lambda g, w, a, r: a(f"{g[0]}\u200b{g[1:]}" if len(g) > 1 else f"\u200b{g}"),
    "written backwards": lambda g, w, a, r: a(f"\u202e{g[::-1]}\u202c"),
    "a sum that is not worked out": lambda g, w, a, r: a(f"{int(g) - 1}+1" if g.isdigit() else f"{g}+{w[0]}"),
    "the other sign": lambda g, w, a, r: a(f"-{g}" if g.isdigit() else g * 2),
    "digits behind it": lambda g, w, a, r: a(f"{g}00"),
    "a very long text": lambda g, w, a, r: a("9" * 4000),
    "refused": lambda g, w, a, r: a("I do not know"),
}
FORMS = [specs.TextReward(form=form) for form in ("exact", "f1", "substring")]
PAID_BY = [
    specs.OutcomeReward(),
    specs.ProcessReward(form="strict"),
    specs.ProcessReward(form="blend_released"),
    specs.CitationReward(eta=0.0),
    specs.SubproblemsReward(),
    *FORMS,
]


def test_there_are_forty_of_them_and_the_gold_is_paid_by_all() -> None:
    assert len(CHEATS) >= 40
    for name in NAMES:
        row = asked(name).row
        assert all(paid(row, row.solution, spec) > 0 for spec in PAID_BY), name


def paid(row: Row, completion: str, spec: specs.Reward) -> float:
    module = judge_family(row.family)
    verdict = module.verify(module.loads(row.graph), completion, Verify())
    return score_completions(spec, [row], [completion], [verdict]).sequence[0]


@pytest.mark.parametrize("cheat", CHEATS)
def test_a_cheat_earns_nothing_from_any_reward_on_any_task(cheat: str) -> None:
    for name in NAMES:
        row, says, wrong = asked(name)
        completion = CHEATS[cheat](row.answer, wrong, says, row)
        earned = {type(spec).__name__ + getattr(spec, "form", ""): paid(row, completion, spec) for spec in PAID_BY}
        assert not any(earned.values()), (name, completion, earned)


STEPS = ["terse", "terse leaf_first", "terse reverse", "prose", "prose reverse", "keychain"]


@pytest.mark.parametrize("name", STEPS)
def test_the_right_answer_without_its_steps_is_not_strict(name: str) -> None:
    row, says, wrong = asked(name)
    steps = row.solution.partition(says("")[:5])[0]
    for completion in (says(row.answer), f"{row.prompt}{says(row.answer)}", steps[: len(steps) // 2] + says(row.answer)):
        assert paid(row, completion, specs.ProcessReward(form="strict")) == 0, completion
    assert paid(row, steps + says(wrong[0]), specs.ProcessReward(form="strict")) == 0


@pytest.mark.parametrize("spoil", ["none", "the answer itself", "a number is a number"])
def test_a_terse_reverse_solution_states_its_equation(spoil: str) -> None:
    row = asked("terse reverse").row
    parts, answer = row.solution.rpartition(terse.SECTION)[0], row.answer
    said = {"none": "", "the answer itself": f"|_={answer}", "a number is a number": "|1=1"}[spoil]
    assert paid(row, f"{parts}{said}#{answer}", specs.ProcessReward(form="strict")) == 0
    assert paid(row, f"{parts}{said}#{answer}", specs.OutcomeReward()) == 1


STATED_AGAIN = {
    "the answer": lambda steps, said, right: f"{said}{right}" * 30,
    "the last step": lambda steps, said, right: "".join([steps[-1]] * 30) + right,
    "the first step": lambda steps, said, right: "".join([steps[0]] * 30) + right,
    "all but one step": lambda steps, said, right: "".join(steps[1:] * 9) + right,
    "without an end": lambda steps, said, right: "".join(steps * 9),
}
"""Of steps, what ends them, and how the right answer is said."""


@pytest.mark.parametrize("cheat", STATED_AGAIN)
@pytest.mark.parametrize("name", STEPS[:5])
def test_repetition_does_not_stand_for_work(name: str, cheat: str) -> None:
    row, says, _ = asked(name)
    prose = name.startswith("prose")
    steps = re.findall(r"[^.]*[.] " if prose else "[^,|]*[,|]", row.solution.partition("<answer>")[0].replace("#", ","))
    said = STATED_AGAIN[cheat](steps[name == "prose reverse" :], " " if prose else ",", says(row.answer))
    assert paid(row, said, specs.ProcessReward(form="strict")) == 0, said
    assert cheat != "without an end" or not any(paid(row, said, spec) for spec in PAID_BY)


@pytest.mark.parametrize("said", ["", "We know x = {answer}.", "We know it, so 1 = 1."])
def test_a_prose_reverse_solution_states_its_equation(said: str) -> None:
    row = asked("prose reverse").row
    before, _, _ = row.solution.partition("We know")
    completion = f"{before}{said.format(answer=row.answer)}</solution><answer>{row.answer}</answer>"
    assert paid(row, completion, specs.ProcessReward(form="strict")) == 0
    assert paid(row, completion, specs.OutcomeReward()) == 1
