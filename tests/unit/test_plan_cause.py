"""Why a stage is new, followed down to the field that someone edited; and a plan beside the lock of another commit."""

import json
import os
import subprocess
from pathlib import Path

import pytest
from lab import Lab, of_kind

from interplay import cli
from interplay.cli import overview
from interplay.core.digest import canonical
from interplay.results import cause, locks
from interplay.results.cause import Cause, Change, show_change, show_value


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lab:
    monkeypatch.chdir(tmp_path)
    return Lab(tmp_path)


def causes(lab: Lab, study: str = "quickstart") -> dict[str, Cause]:
    """By kind and label."""
    return {f"{one.kind} {one.label}": one for one in overview.read_overview(lab.plan(study), lab.configs, lab.results).causes}


def test_an_edited_field_is_named_with_its_values_at_the_stage_and_behind_all_that_follow(lab: Lab) -> None:
    before = lab.plan()
    lab.finish_all(before)
    lab.edit("scale/smoke.yaml", "tokens: 100000", "tokens: 300000")
    found = causes(lab)
    old, new = of_kind(before, "pretrain")[0].digest, of_kind(lab.plan(), "pretrain")[0].digest
    base = found["pretrain base/base@0"]
    assert base.nearest == old
    assert [str(change) for change in base.changes] == ["tokens: 100000 -> 300000"]
    behind = f"{old} -> {new} because pretrain base/base@0: tokens: 100000 -> 300000"
    assert [str(change) for change in found["rl rl_edge/rl@0"].changes] == [f"deps.init: {behind}"]
    (model,) = found["evaluate rl_edge/eval@0"].changes
    assert model.field == "deps.model"
    assert [(root.stage, root.field, root.old, root.new) for root in model.roots] == [
        ("pretrain base/base@0", "tokens", 100000, 300000)
    ]


def test_the_nearest_stage_is_the_one_with_the_fewest_differences_and_else_the_one_at_the_same_place(lab: Lab) -> None:
    lab.finish_all(lab.plan())
    lab.edit(
        "study/quickstart.yaml",
        "evaluate: [eval]",
        "  sharp: {path: [base, rl], set: {rl.data: {hard: 1.0}, rl.temperature: 0.7}}\nevaluate: [eval]",
    )
    hard = next(stage for stage in of_kind(lab.plan(), "rl") if stage.label.startswith("rl_hard"))
    found = causes(lab)["rl sharp/rl@0"]
    assert found.nearest == hard.digest
    assert found.nearest_label == "rl_hard/rl@0"
    assert [str(change) for change in found.changes] == ["temperature: 1.0 -> 0.7"]


def test_a_new_seed_is_grouped_with_the_other_new_seeds(lab: Lab) -> None:
    lab.finish_all(lab.plan())
    lab.edit("study/quickstart.yaml", "values: [0]", "values: [0, 1, 2]")
    groups = cause.group_causes(list(causes(lab).values()))
    sizes = {group[0].kind: len(group) for group in groups}
    assert sizes == {"pretrain": 2, "rl": 4, "evaluate": 6, "report": 1}


def test_a_changed_data_set_is_found_behind_the_corpus_and_told_once(lab: Lab) -> None:
    lab.finish_all(lab.plan())
    lab.edit("scale/smoke.yaml", "train: 4000", "train: 5000")
    found = causes(lab)
    (corpus,) = found["pretrain base/base@0"].changes
    assert str(corpus).endswith("because problems data.corpus: size: 4000 -> 5000")


def test_a_raised_version_is_a_cause(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    from interplay.rl.advantage_spec import GroupAdvantage

    lab.finish_all(lab.plan())
    monkeypatch.setattr(GroupAdvantage, "VERSION", 2)
    assert [str(change) for change in causes(lab)["rl rl_edge/rl@0"].changes] == ["version of method.advantage: 1 -> 2"]


def test_a_field_that_joined_later_is_no_difference_from_a_stage_that_was_written_without_it(lab: Lab) -> None:
    plan = lab.plan()
    lab.finish_all(plan)
    for stage in of_kind(plan, "rl"):
        for name in ("stage.json", "record.json"):
            path = lab.out(stage) / name
            content = json.loads(path.read_text())
            assert canonical(content["spec"].pop("checkpoints")) == []
            path.write_text(json.dumps(content))
    lab.edit("scale/smoke.yaml", "rl: {steps: 4,", "rl: {steps: 5,")
    assert [str(change) for change in causes(lab)["rl rl_edge/rl@0"].changes] == ["steps: 4 -> 5"]


def test_a_report_names_its_claims_and_counts_its_inputs(lab: Lab) -> None:
    lab.finish_all(lab.plan())
    lab.edit("study/quickstart.yaml", "at_most: 0.03", "at_most: 0.05")
    lab.edit("scale/smoke.yaml", "rl: {steps: 4,", "rl: {steps: 5,")
    texts = [str(change) for change in causes(lab)["report report"].changes]
    assert texts[0] == "claims.2.test.at_most: 0.03 -> 0.05"
    assert texts[-1].startswith("inputs: ")
    assert texts[-1].endswith("4 of them others")
    assert len(texts) == 2


def test_many_new_stages_are_capped_and_counted(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    lab.finish_all(lab.plan())
    lab.edit("study/quickstart.yaml", "values: [0]", f"values: {list(range(8))}")
    monkeypatch.setattr(overview, "EXPLAINED", 3)
    seen = overview.read_overview(lab.plan(), lab.configs, lab.results)
    assert seen.passed_over == {"pretrain": 4, "rl": 11, "evaluate": 18}
    assert overview.read_overview(lab.plan(), lab.configs, lab.results, full=True).passed_over == {}


def test_a_part_that_only_one_stage_has_is_one_change(lab: Lab) -> None:
    lab.finish_all(lab.plan())
    lab.edit("study/quickstart.yaml", "  by_op: {x: op, y: strict_pass@1}\n", "")
    lab.edit("study/quickstart.yaml", "figures:\n", "figures:\n  length: {x: step, y: length}\n")
    texts = [str(change) for change in causes(lab)["report report"].changes]
    assert texts == ["figures.by_op: 4 fields -> (none)", "figures.length: (none) -> 4 fields"]


@pytest.mark.parametrize(
    ("old", "new", "text"),
    [
        (40, 60, "40 -> 60"),
        (0.1, 0.1 + 1e-12, "0.1 -> 0.10000000000100001"),
        ([1, 2], [1], "[1, 2] -> [1]"),
        (None, "adamw", "null -> adamw"),
        ("def f():\n    pass\n", "def f():\n    return\n", "2 lines (167976) -> 2 lines (58c623)"),
    ],
)
def test_two_values_never_look_alike(old: object, new: object, text: str) -> None:
    assert show_change(old, new) == text


def test_long_values_are_shortened() -> None:
    assert len(show_value("x" * 500)) == cause.LONGEST
    assert str(Change("a", "x" * 500 + "y", "x" * 500 + "z")).endswith('z"')


# -- another commit ----------------------------------------------------------------------------------------------------


def git(lab: Lab, *words: str) -> None:
    who = {"GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a@b.c", "GIT_COMMITTER_NAME": "a", "GIT_COMMITTER_EMAIL": "a@b.c"}
    subprocess.run(["git", *words], cwd=lab.folder, check=True, capture_output=True, env={**os.environ, **who})


@pytest.fixture
def committed(lab: Lab) -> Lab:
    return commit(lab)


def commit(lab: Lab) -> Lab:
    lab.lock()
    git(lab, "init", "-q")
    git(lab, "add", "configs")
    git(lab, "commit", "-q", "-m", "first")
    git(lab, "tag", "before")
    return lab


def test_a_plan_beside_the_lock_of_another_commit(committed: Lab, capsys: pytest.CaptureFixture[str]) -> None:
    lab = committed
    old = lab.plan()
    lab.edit("scale/smoke.yaml", "rl: {steps: 4,", "rl: {steps: 5,")
    lab.edit("study/quickstart.yaml", "  rl_hard: {path: [base, rl], control: rl_edge, set: {rl.data: {hard: 1.0}}}\n", "")
    lab.edit("study/quickstart.yaml", "arm: rl_hard, against: base", "arm: rl_edge, against: base")
    lab.edit(
        "study/quickstart.yaml", "evaluate: [eval]", "  sharp: {path: [base, rl], set: {rl.temperature: 0.7}}\nevaluate: [eval]"
    )
    assert cli.main(["plan", "quickstart", "--scale", "smoke", "--against", "before"]) == 0
    text = capsys.readouterr().out
    assert text.startswith("against before: 2 added, 3 removed, 3 changed, 8 the same")
    assert "  + rl        " in text
    assert "  - problems  " in text
    assert "steps: 4 -> 5" in text
    assert cli.main(["plan", "quickstart", "--scale", "smoke", "--against", "before", "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert {one["label"] for one in data["removed"]} == {"rl_hard/rl@0", "rl_hard/eval@0", "data.hard"}
    assert {one["label"] for one in data["changed"]} == {"rl_edge/rl@0", "rl_edge/eval@0", "report"}
    assert all(one["nearest"] in old.stages for one in data["changed"])


def test_of_a_brief_lock_what_differs_is_named_from_its_commit(lab: Lab, capsys: pytest.CaptureFixture[str]) -> None:
    lab.edit("scale/smoke.yaml", "\nbands:", "\nlock: report\nbands:")
    lock = commit(lab).plan().lock_path(lab.configs)
    assert json.loads(lock.read_text()).keys() == {"study", "scale", "report", "count", "sha256"}
    assert cli.main(["plan", "quickstart", "--scale", "smoke", "--check"]) == 0
    lab.edit("scale/smoke.yaml", "rl: {steps: 4,", "rl: {steps: 5,")
    assert cli.main(["plan", "quickstart", "--scale", "smoke", "--check"]) == 2
    assert "5 changed; rl rl_edge/rl@0: steps: 4 -> 5" in capsys.readouterr().err
    assert cli.main(["plan", "quickstart", "--scale", "smoke", "--against", "before"]) == 0
    assert capsys.readouterr().out.startswith("against before: 0 added, 0 removed, 5 changed, 9 the same")


def test_stages_of_one_label_pair_up_with_their_likes(lab: Lab) -> None:
    def stage(digest: str, size: int) -> dict[str, object]:
        spec = {"size": size, "seed": size // 100}
        return {"kind": "problems", "digest": digest, "label": "data.test", "spec": spec, "deps": {}, "versions": {"": 1}}

    old = {"a": stage("a", 100), "b": stage("b", 900)}
    new = {"d": stage("d", 901), "c": stage("c", 101)}
    found = locks.compare_stages(old, new)
    assert {one.digest: one.nearest for one in found.changed} == {"c": "a", "d": "b"}
    assert found.added == found.removed == []


@pytest.mark.parametrize("revision", ["nowhere", "--all", "HEAD~99", ""])
def test_a_revision_that_is_none_is_one_line(committed: Lab, capsys: pytest.CaptureFixture[str], revision: str) -> None:
    assert cli.main(["plan", "quickstart", "--scale", "smoke", f"--against={revision}"]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert f"--against {revision}".strip() in error


def test_a_commit_without_the_lock_and_a_folder_without_git_are_one_line(
    committed: Lab, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert cli.main(["plan", "edge", "--scale", "smoke", "--against", "HEAD"]) == 2
    assert "edge.smoke.lock.json" in capsys.readouterr().err
    monkeypatch.setenv("PATH", "/nonexistent")
    assert cli.main(["plan", "quickstart", "--scale", "smoke", "--against", "HEAD"]) == 2
    assert "git is not installed" in capsys.readouterr().err
