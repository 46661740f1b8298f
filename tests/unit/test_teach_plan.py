"""Stages of teaching in a plan: what they read, what of that counts as training, and what is refused before any job."""

from pathlib import Path

import pytest
from sift_study import STUDY, enter, plan, refusal

from interplay.kinds.stages import planned_costs
from interplay.rl.teach_spec import TeachSpec

TEACHING = [
    ("  - /method@stages.rl.method: grpo\n", "  - /method@stages.rl.method: grpo\n  - /method@stages.soar.method: rloo\n"),
    (
        "  base: {kind: pretrain, data: {corpus: 1.0}, validation: held_out}\n",
        "  base: {kind: pretrain, data: {corpus: 1.0}, validation: held_out, corpus: {loss_on: all}}\n",
    ),
    (
        "  probe: {kind: evaluate",
        "  soar: {kind: teach, data: {hard: 1.0}, steps: 4, max_completion_length: 48, checkpoints: [2]}\n  probe: {kind: evaluate",
    ),
    (
        "  rl: {path: [base, rl], control: base}\n",
        "  rl: {path: [base, rl], control: base}\n  soar: {path: [base, soar], control: base}\n"
        "  easy: {path: [base, soar], control: soar, set: {soar.proposer: instances, soar.instances: edge}}\n",
    ),
]
"""The study with a teacher and its control."""


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return enter(tmp_path, monkeypatch)


def test_a_teacher_reads_the_hard_problems_and_a_control_the_easy_ones(root: Path) -> None:
    made = plan(root, *TEACHING, ("evaluate: [eval]\n", "evaluate: [eval]\nscales: {smoke: {bands: {edge: [4]}}}\n"))
    found = {stage.label: stage for stage in made.stages.values() if stage.kind == "teach"}
    soar, easy = found["soar/soar@0"], found["easy/soar@0"]
    label = {digest: stage.label for digest, stage in made.stages.items()}
    assert {role: label[dep] for role, dep in soar.deps.items()} == {"init": "base/base@0", "data.0": "data.hard"}
    assert {role: label[dep] for role, dep in easy.deps.items() if role != "init"} == {
        "data.0": "data.hard", "instances": "data.edge",
    }  # fmt: skip
    assert isinstance(soar.spec, TeachSpec)
    assert soar.spec.task.name == "op_dag"
    assert soar.spec.mix == [1.0]
    trained = made.stages[made.report].spec.model_dump()["trained_ops"]
    base = {op for name, ops in trained.items() if name == "base" for op in ops}
    assert set(trained["soar"]) == base, "the hard problems ask; nothing is trained on them"
    assert set(trained["easy"]) > base


def test_what_a_teacher_costs_is_planned(root: Path) -> None:
    made = plan(root, *TEACHING)
    digest, stage = next((digest, one) for digest, one in made.stages.items() if one.label == "soar/soar@0")
    spec, cost = stage.spec, planned_costs(made.stages_json())[digest]
    assert isinstance(spec, TeachSpec)
    learnt = 4 * (4 * 10 * 32 * 8 * 48 + 4 * 32 * 128)  # students' completions and proposals
    judged = 4 * 5 * 32 * 8 * 48  # hard problems, before and of each student
    assert (cost.tokens, cost.sampled) == (learnt, learnt + judged)
    assert cost.rollouts == 4 * (4 * 10 * 32 * 8 + 4 * 32 + 5 * 32 * 8)
    assert cost.flops == cost.parameters * ((6 + 2) * learnt + 2 * (learnt + judged))  # rloo's penalty asks the reference


CASES: dict[str, tuple[list[tuple[str, str]], str]] = {
    "a base that never wrote a problem": (
        [(", corpus: {loss_on: all}", "")],
        "stages.soar: no corpus taught the model to write problems; give corpus: {loss_on: all} to a stage before it, or instances",
    ),
    "a task without a parser": (
        [("/task@task: op_dag", "/task@task: taxonomy")],
        "stages.soar: proposals are read as problems of task taxonomy, which has no parser; known: op_dag",
    ),
    "a task of its own": (
        [("data: {hard: 1.0}, steps: 4", "data: {hard: 1.0}, task: {name: op_dag}, steps: 4")],
        "stages.soar.task: unknown key 'task'; the planner fills it in",
    ),
    "a tokenizer whose tokens may run over the end": (
        [("question: Does", "tokenizer: {algorithm: bpe}\nquestion: Does")],
        "tokenizer.algorithm = 'bpe': stages.soar ends proposals at a token of one character; write words",
    ),
    "instances beside a teacher": (
        [("soar.proposer: instances, ", "")],
        "arms.easy.set.soar.instances: the teacher proposes; write proposer: instances (stages.soar.instances of study sift)",
    ),
    "no instances": (
        [(", soar.instances: edge", "")],
        "stages.soar.instances: missing; name a problem set",
    ),
    "instances for another kind": (
        [("rl: {kind: rl, data: {sifted: 1.0}}", "rl: {kind: rl, data: {sifted: 1.0}, instances: edge}")],
        "stages.rl.instances: unknown key 'instances' of rl; it is a key of teach",
    ),
    "what is tested as the hard problems": (
        [("data: {hard: 1.0}, steps: 4", "data: {test: 1.0}, steps: 4")],
        "stages.soar.data = 'test': data.test is of split test, which nothing is trained on; take another split, or declare leak: "
        "true there",
    ),
    "what is tested as instances": (
        [("soar.instances: edge", "soar.instances: test")],
        "arms.easy.set.soar.instances = 'test': data.test is of split test, which nothing is trained on; take another split, or "
        "declare leak: true there (stages.soar.instances of study sift)",
    ),
    "one dataset": (
        [("steps: 4, max_completion_length", "steps: 4, datasets: 1, max_completion_length")],
        "datasets = 1: the teacher's advantages compare datasets; give 2 at least",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_what_is_wrong_is_refused_in_a_line(case: str, root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    edits, message = CASES[case]
    text = STUDY
    for old, new in TEACHING:
        assert text.count(old) == 1
        text = text.replace(old, new)
    for old, _ in edits:
        assert text.count(old) == 1, old
    assert refusal(root, capsys, *TEACHING, *edits).endswith(message)
