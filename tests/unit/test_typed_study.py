"""Every stage of a study and every block of a scale is checked when the file is read, whether an arm reaches it or not."""

from pathlib import Path

import pytest
from lab import Lab

from interplay.cli import main
from interplay.core.model import UserError

STUDY, SCALE, OTHER = "study/quickstart.yaml", "scale/smoke.yaml", "scale/gpu.yaml"
EVAL = "  eval: {kind: evaluate, data: test}\n"
SPARE = (
    f"{EVAL}  spare: {{kind: rl, data: {{edge: 1.0}}, steps: 12, method: {{paper: p, loss: {{name: clipped, epsilon: 0.3}}}}}}\n"
)


def refused(lab: Lab) -> str:
    with pytest.raises(UserError) as error:
        lab.plan()
    return str(error.value)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("steps: 12", "stepz: 12", "stages.spare.stepz: unknown key 'stepz'; did you mean 'steps'?"),
        ("epsilon: 0.3", "epsilonn: 3", "stages.spare.method.loss.epsilonn: unknown key 'epsilonn'; did you mean 'epsilon'?"),
        ("clipped", "cliped", "stages.spare.method.loss.name = 'cliped': no such member; did you mean 'clipped'?"),
        ("steps: 12", "steps: many", "stages.spare.steps = 'many': should be a whole number"),
        ("kind: rl, data: {edge: 1.0}, steps", "kind: rll, data: {edge: 1.0}, steps", "stages.spare.kind = 'rll': no such kind; did you mean 'rl'?"),
        ("data: {edge: 1.0}, steps", "data: {egde: 1.0}, steps", "stages.spare.data = 'egde': no such problem set; did you mean 'edge'?"),
        ("data: {edge: 1.0}, steps", "data: edge, steps", "stages.spare.data = 'edge': must map problem sets to shares, such as {edge: 0.2, corpus: rest}"),
        ("data: {edge: 1.0}, steps", "data: {edge: 1.0}, offline: evla, steps", "stages.spare.offline = 'evla': no such stage; did you mean 'eval'?"),
        ("data: {edge: 1.0}, steps", "data: {edge: 0.5}, steps", "stages.spare.data = {'edge': 0.5}: a mix must be shares that sum to 1; these sum to 0.5; name the set that has the rest, as in {edge: 0.5, SET: rest}"),
        ("paper: p, ", "", "stages.spare.method.paper: missing; give it a value"),
        ("steps: 12", "steps: 12, prompts_per_step: 9, minibatches: 2", "stages.spare: prompts_per_step must be a multiple of minibatches"),
        ("steps: 12", "run: {processes: 2, gpus: 3}, steps: 12", "stages.spare.run = {'processes': 2, 'gpus': 3}: gpus = 3: of 2 processes each has one; write 2, or 0"),
    ],
)  # fmt: skip
def test_a_stage_on_no_path_is_refused_like_any_other(tmp_path: Path, old: str, new: str, message: str) -> None:
    lab = Lab(tmp_path)
    lab.edit(STUDY, EVAL, SPARE.replace(old, new))
    assert old in SPARE
    line = (lab.configs / STUDY).read_text().split("  spare:")[0].count("\n") + 1
    assert refused(lab) == f"configs/study/quickstart.yaml:{line}: {message}"


@pytest.mark.parametrize(
    ("file", "old", "new", "message"),
    [
        (SCALE, "kinds:\n", "kinds:\n  unlearn: {objectiv: 3, stepss: 9}\n", "unlearn.objectiv: unknown key 'objectiv'; did you mean 'objective'?"),
        (SCALE, "kinds:\n", "kinds:\n  unlaern: {steps: 9}\n", "unlaern: unknown key 'unlaern'; did you mean 'unlearn'?"),
        (SCALE, "kinds:\n", "kinds:\n  unlearn: {steps: 9, run: {thraeds: 2}}\n", "unlearn.run.thraeds: unknown key 'thraeds'; did you mean 'threads'?"),
    ],
)  # fmt: skip
def test_a_block_of_a_scale_for_a_kind_that_no_stage_has(tmp_path: Path, file: str, old: str, new: str, message: str) -> None:
    lab = Lab(tmp_path)
    lab.edit(file, old, new)
    line = (lab.configs / file).read_text().split("unl")[0].count("\n") + 1
    assert refused(lab) == f"configs/{file}:{line}: kinds.{message}"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("kinds: {unlearn: {stepss: 9}}", "kinds.unlearn.stepss: unknown key 'stepss'; did you mean 'steps'?"),
        ("stages: {rl: {stepz: 9}}", "stages.rl.stepz: unknown key 'stepz'; did you mean 'steps'?"),
        ("stages: {rl: {steps: many}}", "stages.rl.steps = 'many': should be a whole number"),
        ("task: {name: op_dga}", "task.name = 'op_dga': no such member; did you mean 'op_dag'?"),
        ("tasks: {op_dag: {modulos: 7}}", "tasks.op_dag.modulos: unknown key 'modulos'; did you mean 'modulus'?"),
        ("tokenizer: {algoritm: bpe}", "tokenizer.algoritm: unknown key 'algoritm'; did you mean 'algorithm'?"),
        ("data: {edge: {siez: 7}}", "data.edge.siez: unknown key 'siez'; did you mean 'size'?"),
    ],
)
def test_what_a_study_changes_of_another_scale(tmp_path: Path, change: str, message: str) -> None:
    lab = Lab(tmp_path)
    lab.edit(STUDY, "tables:\n", f"scales:\n  gpu: {{{change}}}\n\ntables:\n")
    line = (lab.configs / STUDY).read_text().split("  gpu:")[0].count("\n") + 1
    assert refused(lab) == f"configs/study/quickstart.yaml:{line}: scales.gpu.{message}"


def test_what_scale_or_arm_still_gives_may_be_missing_in_the_study(tmp_path: Path) -> None:
    lab = Lab(tmp_path)
    lab.edit(STUDY, EVAL, f"{EVAL}  more: {{kind: rl, method: {{loss: {{epsilon: 0.3}}}}}}\n")
    given = "{more.data: {edge: 1.0}, more.minibatches: 2, more.method.paper: p, more.method.loss.name: clipped}"
    lab.edit(STUDY, "  rl_hard:", f"  more: {{path: [base, more], control: base, set: {given}}}\n  rl_hard:")
    assert lab.plan().unused == []


def test_a_stage_on_no_path_is_named_and_changes_no_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lab = Lab(tmp_path)
    before = lab.plan().lock()
    lab.edit(STUDY, EVAL, f"{SPARE}  probe: {{kind: evaluate, data: test}}\n")
    assert lab.plan().lock() == before
    monkeypatch.chdir(tmp_path)
    assert main(["plan", "quickstart", "--scale", "smoke"]) == 0
    assert "\nstages on no path: spare, probe\n" in capsys.readouterr().out
