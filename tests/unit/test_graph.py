"""What Snakemake gets of a plan: the resources and the inputs of each stage."""

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st
from lab import Lab, of_kind

from interplay.core import artifact
from interplay.run.graph import Graph
from interplay.run.slurm import Shared, Site, share, write_shared
from interplay.study.plan import Plan


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory) -> Plan:
    lab = Lab(tmp_path_factory.mktemp("graph"))
    lab.edit("scale/smoke.yaml", "pretrain: {", "pretrain: {run: {threads: 3, memory_mb: 2000}, ")
    return lab.plan()


def wildcards(digest: str) -> Any:
    return SimpleNamespace(digest=digest)


def test_what_all_stages_have_is_a_value_and_what_differs_a_look_up(plan: Plan, tmp_path: Path) -> None:
    graph = Graph(tmp_path, [plan])
    [base] = of_kind(plan, "pretrain")
    threads, memory = graph.threads(), graph.resources()["mem_mb"]
    assert callable(threads)
    assert callable(memory)
    assert {digest: threads(wildcards(digest)) for digest in plan.stages} == {
        digest: 3 if digest == base.digest else 1 for digest in plan.stages
    }
    assert memory(wildcards(base.digest)) == 2000
    assert graph.resources()["gpu"] == 0
    assert graph.resources()["runtime"] == 120


def test_a_job_reads_the_resources_of_its_own_stage(plan: Plan, tmp_path: Path) -> None:
    [base] = of_kind(plan, "pretrain")
    artifact.write_json(artifact.folder(tmp_path, base.kind, base.digest) / "stage.json", base.as_json())
    job = Graph(tmp_path, [])
    threads, gpus = job.threads(), job.resources()["gpu"]
    assert callable(threads)
    assert callable(gpus)
    assert (threads(wildcards(base.digest)), gpus(wildcards(base.digest))) == (3, 0)
    assert job.inputs()(wildcards(base.digest)) == []


@given(st.data())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_a_stage_waits_for_all_that_is_missing_and_for_nothing_twice(plan: Plan, data: st.DataObject) -> None:
    """Whatever is done already, in an order that a run leaves or not."""
    graph = Graph(Path("nowhere"), [plan])
    done = data.draw(st.sets(st.sampled_from(sorted(plan.stages))))
    graph.kept = dict.fromkeys(done, Path("kept"))
    inputs = graph.inputs()

    def direct(digest: str) -> set[str]:
        return {Path(record).parent.name for record in inputs(wildcards(digest))}

    for digest, stage in plan.stages.items():
        needed = set(stage.inputs()) - done
        assert direct(digest) <= needed
        assert needed <= set(artifact.closure(direct(digest), direct))
        assert all(one not in direct(other) for one in direct(digest) for other in direct(digest))


def jobs_of(plan: Plan, minutes: float = 10.0, **seconds: float) -> list[Shared]:
    """Every stage is estimated to take two seconds, or what is said of its kind."""
    taken = {digest: seconds.get(stage.kind, 2.0) for digest, stage in plan.stages.items()}
    return share(plan.stages.values(), taken, minutes, Site())


def test_short_stages_of_one_depth_share_a_job_and_none_that_needs_another(plan: Plan) -> None:
    jobs = jobs_of(plan)
    members = [digest for job in jobs for digest in job.members]
    assert len(members) == len(set(members))
    assert {plan.stages[digest].kind for digest in members} >= {"problems", "rl", "evaluate"}
    for job in jobs:
        assert len(job.members) > 1
        for digest in job.members:
            deps = plan.stages[digest].deps.values()
            assert not set(artifact.closure(deps, lambda one: plan.stages[one].deps.values())) & set(job.members)
        assert job.run.memory_mb > max(plan.stages[digest].run.memory_mb for digest in job.members)
        assert job.run.runtime * 60 > Site().warn_seconds + 3 * 3 * len(job.members), (
            "three times what they take, and the warning"
        )


def test_a_long_stage_and_one_of_unknown_time_have_jobs_of_their_own(plan: Plan) -> None:
    kinds = {plan.stages[digest].kind for job in jobs_of(plan, rl=61.0, problems=0.0) for digest in job.members}
    assert "evaluate" in kinds
    assert not {"rl", "problems"} & kinds
    assert jobs_of(plan, minutes=0.0) == []
    assert len(jobs_of(plan, minutes=0.1)) > len(jobs_of(plan)), "six seconds, two stages each"


def test_what_needs_a_stage_that_shares_a_job_waits_for_that_job(plan: Plan, tmp_path: Path) -> None:
    graph, jobs = Graph(tmp_path, [plan]), jobs_of(plan)
    graph.share(jobs)
    inputs, runtime = graph.inputs(), graph.resources()["runtime"]
    by_member = {digest: job.digest for job in jobs for digest in job.members}

    def waits_for(digest: str) -> set[str]:
        return {Path(path).parent.name for path in inputs(wildcards(digest))}

    made = artifact.closure([plan.report], waits_for)
    assert set(made) == {by_member.get(digest, digest) for digest in plan.stages}
    for digest, stage in plan.stages.items():
        needed = {by_member.get(ref, ref) for ref in stage.inputs()}
        assert needed <= set(made[: made.index(by_member.get(digest, digest))]), "all of it is made before"
    assert callable(runtime)
    assert [runtime(wildcards(job.digest)) for job in jobs] == [job.run.runtime for job in jobs]


def test_stages_that_were_removed_are_made_again_though_what_their_job_left_is_there(plan: Plan, tmp_path: Path) -> None:
    graph, (job, *_) = Graph(tmp_path, [plan]), jobs_of(plan)
    artifact.write_atomic(job.folder(tmp_path) / "made", b"")
    graph.share([job])
    assert {stage.digest for stage in graph.to_make()} == {*plan.stages}
    records = [str(artifact.folder(tmp_path, plan.stages[one].kind, one) / "record.json") for one in job.members]
    assert graph.missing(job.members) == records


def test_another_launch_leaves_the_file_that_jobs_of_this_one_wait_for(plan: Plan, tmp_path: Path) -> None:
    jobs = jobs_of(plan)
    write_shared(tmp_path, jobs, plan.stages, Site())
    made = jobs[0].folder(tmp_path) / "made"
    artifact.write_atomic(made, b"")
    for one in jobs[0].members:
        artifact.write_json(artifact.folder(tmp_path, plan.stages[one].kind, one) / "record.json", {})
    write_shared(tmp_path, [], plan.stages, Site())
    assert made.exists(), "of another study"
    write_shared(tmp_path, jobs, plan.stages, Site())
    assert made.exists(), "of the same study"


def test_a_job_that_stages_shared_leaves_nothing_a_month_after_they_are_made(plan: Plan, tmp_path: Path) -> None:
    jobs = jobs_of(plan)
    write_shared(tmp_path, jobs, plan.stages, Site())
    job = Graph(tmp_path, [])
    memory = job.resources()["mem_mb"]
    assert callable(memory)
    assert [memory(wildcards(one.digest)) for one in jobs] == [one.run.memory_mb for one in jobs]
    for one in jobs[0].members:
        artifact.write_json(artifact.folder(tmp_path, plan.stages[one].kind, one) / "record.json", {})
    for path in tmp_path.glob("shared/*/stage.json"):
        os.utime(path, (0, 0))
    write_shared(tmp_path, [], plan.stages, Site())
    assert {path.name for path in (tmp_path / "shared").iterdir()} == {one.digest for one in jobs[1:]}
