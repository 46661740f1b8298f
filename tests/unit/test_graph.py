"""What Snakemake gets of a plan: the resources and the inputs of each stage."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st
from lab import Lab, of_kind

from interplay.core import artifact
from interplay.run.graph import Graph
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
        needed = {artifact.split_ref(ref)[0] for ref in stage.deps.values()} - done
        assert direct(digest) <= needed
        assert needed <= set(artifact.closure(direct(digest), direct))
        assert all(one not in direct(other) for one in direct(digest) for other in direct(digest))
