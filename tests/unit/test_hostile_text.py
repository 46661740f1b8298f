"""Text that a model wrote is judged and replied to as text: whatever it is, nothing raises, runs, or takes long."""

import random
import time
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT, examples
from hypothesis import given, strategies as st
from test_families import TASKS

from interplay.data.foreign import FORMATS, read_items
from interplay.data.spec import Defects
from interplay.tasks import multihop, qa
from interplay.tasks.environments.spec import PACKAGED
from interplay.tasks.families import families_with, judge_family, language_of, task_family
from interplay.tasks.family import Environment, Generator
from interplay.tasks.spec import Verify
from interplay.tasks.transcripts import MARK, policy_turns

MOST_SECONDS = 3.0
"""Of processor time for one text; the slowest takes a tenth of it on an idle core."""
LONG = 20_000
"""Characters; a completion of 4,096 tokens has about as many."""
CODE = "__import__('pathlib').Path('ran').touch()"
HOSTILE = {
    "code": CODE,
    "a statement": f"import os; {CODE}",
    "a call in a template": f"{{{{ {CODE} }}}} ${{{CODE}}} {{0.__class__.__mro__}} %s%n%d",
    "a power of powers": "9**9**9**9",
    "a power in signs": "9^9^9^9 = 2^{2^{2^{2^{99}}}}",
    "a factorial": "99999999!!!",
    "an exponent": "1e999999999 - 1E-999999999 inf nan -0",
    "a long number": "7" * LONG,
    "a long sum": "1+" * (LONG // 2) + "1",
    "brackets": "(" * LONG,
    "closed brackets": "(" * (LONG // 2) + "1" + ")" * (LONG // 2),
    "braces": "\\boxed{" * (LONG // 7) + "1" + "}" * (LONG // 7),
    "fractions": "\\frac{" * (LONG // 6),
    "blanks": " " * LONG + "x",
    "lines": "\n" * LONG + "x",
    "one letter": "a" * LONG,
    "many answers": "answer: 3. " * (LONG // 11),
    "commas": "1," * (LONG // 2),
    "signs": "-" * LONG + "1",
    "nothing": "",
    "a zero": "\x00",
    "controls": "\x1b[2J\x1b]0;pwned\x07\r\x9b",
    "half a pair": "\ud800",
    "other digits": "٣ ² ½ Ⅷ 𝟙 ①",
    "marks": MARK * (LONG // 10),
    "calls": "calc(9**9**9) look(x) ask(y) move(1) " * 200,
    "nested calls": "calc(" * 3000 + "1" + ")" * 3000,
}


def problem_of(family: str) -> tuple[Any, Any, str]:
    """(module, problem, gold solution) of a family."""
    if family in TASKS:
        task, module = TASKS[family], task_family(TASKS[family])
        low, high = task.ops()
        problem = module.generate(task, 1, 3, min(low + 1, high))
        return module, problem, module.render(problem, task)[1]
    name = {"qa": "gsm8k", "multihop": "musique"}[family]
    path = next((ROOT / "data/fixtures").glob(f"{name}.json*"))
    problem = read_items(path, FORMATS[name], Defects())[0][0].problem
    return judge_family(family), problem, qa.render(problem)[1] if family == "qa" else multihop.render(problem, "published")[1]


PROBLEMS = {family: problem_of(family) for family in (*TASKS, "qa", "multihop")}


def around(gold: str, text: str) -> list[str]:
    """The text alone, boxed, behind the gold, before it, and in the place of each of some of its words."""
    words = gold.split(" ")
    places = random.Random(0).sample(range(len(words)), min(4, len(words)))
    inside = [" ".join([*words[:place], text, *words[place + 1 :]]) for place in places]
    return [text, f"\\boxed{{{text}}}", f"{gold}{text}", f"{text}\n{gold}", f"calc({text})", *inside]


def judged(family: str, text: str) -> None:
    """Judge and, in an environment, reply to the text; both twice, to the same end."""
    module, problem, _ = PROBLEMS[family]
    started = time.process_time()
    verdict = module.verify(problem, text, Verify())
    replies = [module.reply(problem, policy_turns(text)) for _ in range(2)] if isinstance(module, Environment) else []
    assert time.process_time() - started < MOST_SECONDS, text[:80]
    assert 0 <= verdict.score <= 1
    assert replies[:1] == replies[1:]


def test_every_family_is_tried() -> None:
    elsewhere = {*PACKAGED, "sql_questions", "with_tools"}  # tested in test_adapters and test_tools
    assert {*TASKS, *elsewhere} == set(families_with(Generator))


@pytest.mark.parametrize("kind", HOSTILE)
@pytest.mark.parametrize("family", PROBLEMS)
def test_hostile_text_is_judged_at_once_and_never_run(
    family: str, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for text in around(PROBLEMS[family][2], HOSTILE[kind]):
        judged(family, text)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("family", PROBLEMS)
@examples(60)
@given(data=st.data())
def test_any_text_is_judged(family: str, data: st.DataObject) -> None:
    gold = PROBLEMS[family][2]
    piece = st.one_of(
        st.text(max_size=30), st.sampled_from(sorted(set(gold.split(" ")))), st.sampled_from(["9**9**9", "(", "{", MARK])
    )
    text = data.draw(
        st.one_of(st.text(max_size=200), st.lists(piece, max_size=12).map(" ".join), st.lists(piece, max_size=12).map("".join))
    )
    judged(family, text)


@pytest.mark.parametrize("kind", HOSTILE)
def test_a_prompt_that_a_model_wrote_is_read_at_once_and_never_run(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    task = TASKS["op_dag"]
    language, prompt = language_of(task), task_family(task).render(PROBLEMS["op_dag"][1], task)[0]
    for text in around(prompt, HOSTILE[kind]):
        started = time.process_time()
        language.read(text, task)
        assert time.process_time() - started < MOST_SECONDS
    assert list(tmp_path.iterdir()) == []
