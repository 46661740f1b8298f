"""Word problems about a count: somebody has some things, and `op` times gets or gives some. A model of the hub with 135 million
parameters gets some of them right. Answers are judged as those of `interplay.tasks.qa` are, in a box."""

import hashlib
import json
import random
import re
from typing import NamedTuple

from interplay.tasks import qa
from interplay.tasks.family import Generator, Rendered

NAMES = ["Ada", "Ben", "Cleo", "Dan", "Eva", "Finn", "Gia", "Hugo", "Ida", "Jon", "Kim", "Leo", "Mia", "Noah", "Ola", "Pia"]
THINGS = ["apples", "books", "cards", "coins", "eggs", "flowers", "keys", "marbles", "pens", "shells", "stamps", "stickers"]
MORE = ("{who} buys {n} more.", "{who} finds {n} more.", "A friend gives {who} {n} more.")
FEWER = ("{who} loses {n} of them.", "{who} sells {n} of them.", "{who} gives {n} of them to a friend.")


class Problem(NamedTuple):
    """A question, its answer and the worked steps."""

    question: str
    answers: list[str]
    steps: list[str]
    mode: str = "forward"


def counts(largest=40, change=9):
    """Counts lie in 1..largest and change by 1..change. Problems of equal numbers are of one split, whoever has whatever."""

    def generate(task, seed, index, op):
        draw = random.Random(f"{seed} {index} {op}")
        who, what, count = draw.choice(NAMES), draw.choice(THINGS), draw.randint(2, largest)
        said, steps = [f"{who} has {count} {what}."], []
        for _ in range(op):
            more = count == 1 or (count < largest and draw.random() < 0.5)
            n = draw.randint(1, min(change, largest - count if more else count - 1))
            said.append(draw.choice(MORE if more else FEWER).format(who=who, n=n))
            steps.append(f"{count} {'+' if more else '-'} {n} = {count + n if more else count - n}.")
            count += n if more else -n
        return Problem(f"{' '.join(said)} How many {what} does {who} have now?", [str(count)], steps)

    def render(problem, task):
        prompt = f"Question: {problem.question} Put the answer in \\boxed{{}}.\nAnswer:"
        return Rendered(prompt, f" {' '.join(problem.steps)} \\boxed{{{problem.answers[0]}}}", problem.answers[0])

    def numbers(text):
        return [int(n) if which != "of" else -int(n) for n, which in re.findall(r"(\d+)(?: (more|of))?", text)]

    return Generator(
        name="counts",
        errors=qa.QA.errors,
        generate=generate,
        render=render,
        solve=lambda prompt, task: str(sum(numbers(prompt))),
        structure=lambda problem: hashlib.sha256(str(numbers(problem.question)).encode()).hexdigest()[:16],
        vocabulary=lambda task: list("0123456789"),
        loads=lambda text: Problem(*json.loads(text)),
        verify=qa.verify,
    )
