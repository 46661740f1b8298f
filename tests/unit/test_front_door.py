"""A study from its first line to its state: `interplay new` and `interplay list`."""

import re
from pathlib import Path

import pytest
from command_line import interplay
from lab import Lab

from interplay.results import state


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lab:
    monkeypatch.chdir(tmp_path)
    return Lab(tmp_path)


@pytest.mark.parametrize("source", ["quickstart", "interplay/extrapolation", "methods/preference"])
@pytest.mark.parametrize("name", ["mine", "of/mine"])
def test_a_new_study_plans_what_its_source_does_and_its_examples_hold(
    name: str, source: str, lab: Lab, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, _ = interplay(capsys, "new", name, "--from", source, "--scale", "smoke")
    assert code == 0
    assert f"wrote configs/study/{name}.yaml" in out
    before = {digest for digest, stage in lab.plan(source).stages.items() if stage.kind != "report"}
    assert before == {digest for digest, stage in lab.plan(name).stages.items() if stage.kind != "report"}

    path = lab.configs / "study" / f"{name}.yaml"
    head, arms, rest = path.read_text().partition("#arms:")
    path.write_text(head + re.sub(r"^#(arms:|claims:|  )", r"\1", arms + rest, flags=re.MULTILINE))
    made = lab.plan(name)
    labels = {stage.label.split("/")[0] for stage in made.stages.values() if stage.digest not in before}
    assert "longer" in labels
    assert sum(label.startswith("swept[") for label in labels) == 2


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("quickstart",), "configs/study/quickstart.yaml: is there already"),
        (("../mine",), "a study's name has a-z, 0-9, _ and / alone"),
        (("mine", "--from", "quickstrat"), "did you mean 'quickstart'?"),
    ],
)
def test_what_cannot_be_written_is_refused(
    words: tuple[str, ...], message: str, lab: Lab, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, error = interplay(capsys, "new", *words)
    assert (code, out) == (2, "")
    assert message in error
    assert not (lab.configs / "study/mine.yaml").exists()


def test_the_list_has_every_study_with_its_question_and_its_states(lab: Lab, capsys: pytest.CaptureFixture[str]) -> None:
    plan = lab.lock()
    for stage in plan.stages.values():
        lab.start(stage)
    lab.finish_all(plan, but=("report", "evaluate"))
    out = interplay(capsys, "list")[1]
    rows = {line.split()[0]: line for line in out.splitlines()}
    assert "10 of 14 at smoke" in rows["quickstart"]
    assert "Does RL lift a model at the edge" in rows["quickstart"]
    assert rows["edge"].split()[1] == "-"
    assert rows["edge_bases"].endswith(rows["edge"].partition("  -  ")[2].strip()), "a study without a question asks its source's"
    lab.finish_all(plan)
    assert "finished at smoke" in interplay(capsys, "list")[1]


def test_stages_shared_with_another_study_do_not_make_a_study_begun(lab: Lab) -> None:
    lab.finish_all(lab.plan(), but=("report",))
    assert not state.has_begun(lab.results, lab.plan())
    lab.start(lab.plan().stages[lab.plan().report])
    assert state.has_begun(lab.results, lab.plan())


@pytest.mark.parametrize(
    ("what", "known"), [("methods", "dr_grpo"), ("tasks", "op_dag"), ("scales", "smoke"), ("metrics", "nll")]
)
def test_what_a_study_may_name_is_listed(what: str, known: str, lab: Lab, capsys: pytest.CaptureFixture[str]) -> None:
    rows = {line.split()[0]: line for line in interplay(capsys, "list", what)[1].splitlines()[1:]}
    assert len(rows[known].split()) > 3
