"""Scale coffee: a study as it stands starts from the bases that come with the project."""

import shutil

import pytest
from conftest import ROOT, Laboratory

from interplay.core import artifact
from interplay.results.payloads import SHIPPED

pytestmark = pytest.mark.workflow


@pytest.fixture
def with_bases(laboratory: Laboratory) -> Laboratory:
    shutil.copytree(ROOT / SHIPPED, laboratory.folder / SHIPPED)
    return laboratory


def test_a_dry_run_schedules_no_pre_training_and_no_corpus_and_leaves_nothing(with_bases: Laboratory) -> None:
    result = with_bases.snakemake("study=quickstart", "scale=coffee", flags=("-n",))
    assert result.returncode == 0, result.stderr + result.stdout
    lines = [line.split() for line in (result.stdout + result.stderr).splitlines()]
    jobs = {words[0]: int(words[1]) for words in lines if len(words) == 2 and words[1].isdigit()}
    assert jobs.keys() == {"all", "problems", "rl", "evaluate", "report", "total"}
    assert with_bases.records() == {}


@pytest.mark.slow
def test_the_quickstart_runs_from_them(with_bases: Laboratory) -> None:
    result = with_bases.snakemake("study=quickstart", "scale=coffee")
    assert result.returncode == 0, result.stderr + result.stdout
    taken = list((with_bases.folder / "results/pretrain").glob("*"))
    assert len(taken) == 1
    artifact.check(taken[0])
    assert not list((with_bases.folder / "results").glob("corpus/*/record.json"))
    assert with_bases.run("interplay", "verify").returncode == 0
