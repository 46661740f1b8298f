"""Contexts of op_dag: alphabets that share no letter over one law of graphs, one tokenizer for all, and one identity of a problem."""

from pathlib import Path

import pytest
from conftest import copy_configs, examples
from hypothesis import given, strategies as st
from pydantic import ValidationError

from interplay.core.artifact import write_json
from interplay.core.digest import canonical, hashed
from interplay.core.execution import Run
from interplay.core.model import UserError
from interplay.data import problems, sets
from interplay.data.curate import StepInputs
from interplay.data.spec import ProblemsSpec, TokenizerSpec
from interplay.data.steps.filter import deduplicate
from interplay.data.steps.spec import Deduplicate
from interplay.data.tokenizer import character_tokenizer
from interplay.kinds.stages import vocabulary_size
from interplay.study.expand import plan_study
from interplay.study.plan import Plan
from interplay.tasks.op_dag.dag import structure
from interplay.tasks.op_dag.dag_growth import generate
from interplay.tasks.op_dag.spec import OpDag
from interplay.tasks.op_dag.terse import alphabet, render
from interplay.tasks.op_dag.terse_prompts import solve
from interplay.tasks.op_dag.terse_verifier import verify
from interplay.tasks.spec import Verify

PAIR = [OpDag(letters=12, contexts=2, context=context, distractors=(0, 4), modulus=11, constants=(0, 10)) for context in (0, 1)]
ALPHABETS = ("abcdefghijkl", "mnopqrstuvwx")
TRANSLATED = str.maketrans(*ALPHABETS)
AT = st.tuples(st.integers(0, 5), st.integers(0, 10**6), st.integers(1, 8))
"""(seed, index, op)"""


@given(AT)
@examples(200)
def test_two_contexts_differ_in_the_names_alone(at: tuple[int, int, int]) -> None:
    first, second = (generate(task, *at) for task in PAIR)
    names = [{node.name for node in problem.nodes} for problem in (first, second)]
    assert names[0] <= set(ALPHABETS[0])
    assert names[1] <= set(ALPHABETS[1])
    assert structure(first) == structure(second)
    texts = [render(problem, task) for problem, task in zip((first, second), PAIR, strict=True)]
    assert [part.translate(TRANSLATED) for part in texts[0]] == list(texts[1])


@given(AT)
@examples(100)
def test_the_solver_and_the_verifier_read_every_context(at: tuple[int, int, int]) -> None:
    for task in PAIR:
        problem = generate(task, *at)
        prompt, solution, answer = render(problem, task)
        assert solve(prompt, task) == answer
        assert verify(problem, solution, Verify()).strict
        assert not verify(
            problem, solution.translate(str.maketrans("".join(ALPHABETS), "".join(reversed(ALPHABETS)))), Verify()
        ).strict


@given(AT)
def test_the_first_context_is_the_task_without_contexts(at: tuple[int, int, int]) -> None:
    plain = OpDag.model_validate({**PAIR[0].model_dump(), "contexts": 1})
    assert generate(plain, *at) == generate(PAIR[0], *at)


def test_all_contexts_share_one_alphabet_whose_size_the_cost_knows() -> None:
    assert alphabet(PAIR[0]) == alphabet(PAIR[1])
    assert alphabet(PAIR[0]).endswith("".join(ALPHABETS))
    assert vocabulary_size(canonical(TokenizerSpec(task=PAIR[1]))) == character_tokenizer(alphabet(PAIR[1])).get_vocab_size()


def test_a_task_without_contexts_keeps_its_identity() -> None:
    assert not {"context", "contexts"} & set(hashed(OpDag()))
    assert {"context", "contexts"} <= set(hashed(PAIR[1]))


@pytest.mark.parametrize(
    ("knobs", "words"),
    [
        ({"letters": 26, "contexts": 3}, "3 alphabets of 26 letters; there are 52 letters in all"),
        ({"contexts": 2, "context": 2}, r"context = 2: contexts = 2, so it must lie in 0\.\.1"),
        ({"context": 1}, r"so it must lie in 0\.\.0"),
    ],
)
def test_refused_is_a_context_that_has_no_letters(knobs: dict[str, int], words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        OpDag.model_validate(knobs)


# -- sets in two contexts ------------------------------------------------------------------------------------------------------


def made(folder: Path, task: OpDag, split: str = "train", seed: int = 0, size: int = 60) -> Path:
    spec = ProblemsSpec.model_validate(
        {"task": task, "bands": {"id": {3: 0.5, 4: 0.5}}, "shares": {"id": 1.0}, "size": size, "split": split, "seed": seed}
    )
    out = folder / f"{task.context}{split}{seed}"
    problems.generate_problems(spec, {}, out, Run())
    write_json(out / "stage.json", {"kind": "problems", "digest": out.name, "deps": {}})
    return out


def keys(folder: Path) -> list[str]:
    return [row.key for row in sets.read_rows(folder, 0)]


def test_sets_of_one_split_are_translations_unless_their_seeds_differ_and_splits_share_none(tmp_path: Path) -> None:
    first, second, other, test = (
        made(tmp_path, PAIR[0]), made(tmp_path, PAIR[1]), made(tmp_path, PAIR[1], seed=1), made(tmp_path, PAIR[1], "test"),
    )  # fmt: skip
    assert keys(first) == keys(second)
    assert len(set(keys(first)) & set(keys(other))) < 10
    assert not set(keys(first)) & set(keys(test))


def test_steps_that_compare_up_to_names_take_a_translation_for_the_same_problem(tmp_path: Path) -> None:
    rows = [*sets.read_rows(made(tmp_path, PAIR[0]), 0), *sets.read_rows(made(tmp_path, PAIR[1]), 1)]
    left = {
        how: len(deduplicate(Deduplicate.model_validate({"how": how}), rows, StepInputs(0, {}, 0)).rows)
        for how in ("exact", "structural")
    }
    assert left == {"exact": 120, "structural": 60}


STUDY = """
defaults:
  - /task@task: op_dag
  - _self_
question: Do seeds of another context suffice?
task: {contexts: 2}
data:
  corpus: {band: id, split: train}
  seeds_b: {band: id, split: train, seed: 1, size: 100, task: {context: 1}}
  test_b: {band: id, split: test, task: {context: 1}}
stages:
  base: {kind: pretrain, data: {corpus: 0.9, seeds_b: 0.1}}
  eval: {kind: evaluate, data: test_b}
arms:
  base: {path: [base]}
evaluate: [eval]
seeds: {values: [0], vary: []}
"""


def plan(tmp_path: Path, text: str = STUDY) -> Plan:
    configs = tmp_path / "configs"
    if not configs.exists():
        copy_configs(configs.parent)
    (configs / "study/two.yaml").write_text(text)
    return plan_study(configs, "two", "smoke")


def test_sets_in_two_contexts_share_one_tokenizer_made_of_one_task(tmp_path: Path) -> None:
    found = plan(tmp_path)
    (tokenizer,) = [stage for stage in found.stages.values() if stage.kind == "tokenizer"]
    assert tokenizer.spec.others == []  # type: ignore[attr-defined]
    assert tokenizer.spec.task.contexts == 2  # type: ignore[attr-defined]
    contexts = {
        stage.label: (stage.spec.task.context, stage.spec.seed) for stage in found.stages.values() if stage.kind == "problems"
    }  # type: ignore[attr-defined]
    assert contexts == {"data.corpus": (0, 0), "data.seeds_b": (1, 1), "data.test_b": (1, 0)}


def test_a_set_in_a_context_that_its_task_does_not_have_is_refused_with_its_line(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"two\.yaml:[0-9]+: .*context = 1: contexts = 1"):
        plan(tmp_path, STUDY.replace("task: {contexts: 2}\n", ""))


def test_a_seed_belongs_to_generated_sets(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="seed does not go with a set that is made of others"):
        plan(tmp_path, STUDY.replace("stages:", "  mixed: {mix: {corpus: 1.0}, seed: 3}\nstages:", 1))
