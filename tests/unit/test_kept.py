"""What is kept of a finished study, and when it may stand in for the stages themselves."""

import shutil
import threading
from pathlib import Path

import pytest
from lab import Lab, of_kind

from interplay.core import artifact
from interplay.results import payloads
from interplay.run.graph import open_graph
from interplay.study.plan import Plan


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    return Lab(tmp_path)


def finish_and_keep(lab: Lab) -> Plan:
    """All stages finished and kept, then lost but for what was kept."""
    plan = lab.plan()
    lab.finish_all(plan)
    payloads.keep_study(lab.results, plan)
    for kind in {stage.kind for stage in plan.stages.values()}:
        shutil.rmtree(lab.results / kind)
    return plan


def test_a_kept_folder_holds_what_it_should_and_what_is_equal_is_not_touched(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.write_text("one")
    out = tmp_path / "out"
    payloads.write_folder(out, {"a/b": source, "c/d": b"two"})
    before = (out / "a/b").stat()
    payloads.write_folder(out, {"a/b": source, "e": b"three"})
    assert {str(p.relative_to(out)): p.read_text() for p in out.rglob("*") if p.is_file()} == {"a/b": "one", "e": "three"}
    assert not (out / "c").exists()
    assert ((out / "a/b").stat().st_ino, (out / "a/b").stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


def test_a_study_of_which_a_record_is_not_here_keeps_what_was_kept_of_it(lab: Lab) -> None:
    plan = lab.plan()
    lab.finish_all(plan)
    payloads.keep_study(lab.results, plan)
    before = sorted(lab.results.glob("studies/*/records/*/*"))
    assert len(before) == len(plan.stages)
    shutil.rmtree(lab.results / "rl")
    payloads.keep_study(lab.results, plan)
    assert sorted(lab.results.glob("studies/*/records/*/*")) == before


def test_kept_records_stand_in_for_all_stages_but_the_report(lab: Lab) -> None:
    plan = finish_and_keep(lab)
    back = payloads.restore_records(lab.results, plan.stages, [])
    assert set(back) == set(plan.stages) - {plan.report}
    folders = [lab.out(plan.stages[digest]) for digest in back]
    assert all(artifact.done(folder) and artifact.absent(folder) == ["payload.bin"] for folder in folders)


def test_a_launch_that_only_looks_counts_kept_records_and_writes_nothing(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = finish_and_keep(lab)
    monkeypatch.chdir(lab.folder)
    before = sorted(lab.results.rglob("*"))
    graph = open_graph(lab.folder, {"study": "quickstart", "scale": "smoke"}, True)
    assert graph.missing(list(plan.stages)) == graph.targets() == [f"results/report/{plan.report}/record.json"]
    assert [stage.digest for stage in graph.to_make()] == [plan.report]
    assert sorted(lab.results.rglob("*")) == before
    graph.restore()
    assert graph.missing(list(plan.stages)) == graph.targets()
    assert all(artifact.done(lab.out(stage)) for stage in plan.stages.values() if stage.kind != "report")


def test_a_record_does_not_stand_in_for_a_stage_that_is_being_made(lab: Lab) -> None:
    plan = finish_and_keep(lab)
    stage = of_kind(plan, "rl")[0]
    out = lab.start(stage)
    artifact.write_json(out / "resume/state.json", {"step": 1})
    with artifact.lease(out):
        assert stage.digest not in payloads.restore_records(lab.results, plan.stages, ["pretrain", "problems", "tokenizer"])
        assert (out / "resume/state.json").exists()
    assert not artifact.done(out)


def test_a_record_is_put_back_once_a_run_that_began_meanwhile_has_ended(lab: Lab, capfd: pytest.CaptureFixture[str]) -> None:
    plan = finish_and_keep(lab)
    stage = of_kind(plan, "rl")[0]
    places = payloads.restorable_records(lab.results, {stage.digest: stage}, [])
    out = lab.start(stage)
    with artifact.lease(out):
        late = threading.Thread(target=payloads.restore_from, args=(lab.results, {stage.digest: stage}, places))
        late.start()
        late.join(0.5)
        assert late.is_alive()
        artifact.write_json(out / "resume/state.json", {"step": 1})
        (out / "record.json").write_text("its own")
    late.join(10)
    assert (out / "record.json").read_text() == "its own"
    assert (out / "resume/state.json").exists()


def test_a_record_does_not_stand_in_where_the_payload_itself_is_needed_and_cannot_be_had(lab: Lab) -> None:
    plan = finish_and_keep(lab)
    base, lost = of_kind(plan, "pretrain")[0], of_kind(plan, "rl")[0]
    shutil.rmtree(lab.results / "studies" / "quickstart.smoke" / "records" / "rl" / lost.digest)
    back = payloads.restore_records(lab.results, plan.stages, [])
    assert base.digest not in back  # the rl stage starts from its weights: both are made again
    assert base.deps["corpus"] not in back
    other = next(stage for stage in of_kind(plan, "rl") if stage.digest != lost.digest)
    assert other.digest in back


def test_a_record_stands_in_where_dvc_may_have_the_payload(lab: Lab) -> None:
    plan = finish_and_keep(lab)
    lost = of_kind(plan, "rl")[0]
    shutil.rmtree(lab.results / "studies" / "quickstart.smoke" / "records" / "rl" / lost.digest)
    back = payloads.restore_records(lab.results, plan.stages, ["pretrain", "problems"])
    assert of_kind(plan, "pretrain")[0].digest in back


def test_an_artifact_of_which_there_is_only_the_record_is_not_taken_for_its_payload(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = lab.plan()
    lab.finish_all(plan)
    base = of_kind(plan, "pretrain")[0]
    (lab.out(base) / "payload.bin").unlink()
    monkeypatch.chdir(lab.folder)
    for name in (".dvc/config", ".git"):
        artifact.write_atomic(lab.folder / name, b"")
    asked: list[str] = []
    monkeypatch.setattr(payloads, "run_dvc", lambda *arguments: asked.extend(arguments))
    added = payloads.add_payloads(Path("results"), [plan])
    assert len(added) == len(plan.stages) - 1
    assert f"results/pretrain/{base.digest}" not in asked
    assert payloads.add_payloads(Path("results"), [plan]) == []
    (lab.results / "rl.dvc").write_text("outs: []  # as after git pull")
    assert {Path(path).parent.name for path in payloads.add_payloads(Path("results"), [plan])} == {"rl"}


def test_a_record_that_is_put_back_brings_its_own_files_where_a_run_was_broken_off(lab: Lab) -> None:
    plan = lab.plan()
    stage, whole = of_kind(plan, "rl")[0], '{"step": 1}\n{"step": 2}\n'
    (lab.start(stage) / "metrics.jsonl").write_text(whole)
    lab.finish_all(plan)
    payloads.keep_study(lab.results, plan)
    shutil.rmtree(lab.out(stage))
    out = lab.start(stage)
    for name, content in {"metrics.jsonl": '{"step": 1}\n', "payload.bin": "half", "rollouts.parquet": "half"}.items():
        (out / name).write_text(content)
    assert payloads.restore_records(lab.results, plan.stages, []) == [stage.digest]
    assert (out / "metrics.jsonl").read_text() == whole
    assert artifact.absent(out) == ["payload.bin"]
    assert not (out / "rollouts.parquet").exists()
