"""Rounds: `{repeat: N, stages: [...]}` of a path as ordinary stages, each from the one before; and sets that are made with the model
that their reader starts from."""

import itertools
from pathlib import Path

import pytest
from lab import Lab, of_kind

from interplay.core.model import KeyPlace, UserError
from interplay.study.compose import with_rounds
from interplay.study.plan import Plan

STUDY = "methods/rounds"
FILE = f"study/{STUDY}.yaml"
THREE = "{path: [base, {repeat: 3, stages: [sft]}], control: stale"


def path_of(plan: Plan, arm: str) -> list[tuple[str, str]]:
    row = next(row for row in plan.stages[plan.report].spec.arms if row.arm == arm)  # type: ignore[attr-defined]
    return [(part.name, part.digest) for part in row.path]


def test_rounds_follow_each_other_and_sample_the_model_that_they_start_from(tmp_path: Path) -> None:
    plan = Lab(tmp_path).plan(STUDY)
    names, digests = zip(*path_of(plan, "three"), strict=True)
    assert names == ("base", "sft", "sft_2", "sft_3")
    for before, digest in itertools.pairwise(digests):
        stage = plan.stages[digest]
        assert stage.deps["init"] == before
        corpus = plan.stages[stage.deps["corpus"]]
        assert plan.stages[corpus.deps["data.0"]].deps["model"] == before
    assert len({plan.stages[one].label for one in digests}) == 4


def test_the_control_samples_the_base_alone_and_shares_the_first_round(tmp_path: Path) -> None:
    plan = Lab(tmp_path).plan(STUDY)
    stale, three = path_of(plan, "stale"), path_of(plan, "three")
    assert stale[:2] == three[:2]
    written = {plan.stages[plan.stages[one].deps["corpus"]].deps["data.0"] for _, one in stale[1:]}
    assert [plan.stages[one].deps["model"] for one in written] == [stale[0][1]]
    assert len(of_kind(plan, "generate")) == 3


def test_a_round_has_seeds_of_its_own_and_what_is_set_holds_in_all(tmp_path: Path) -> None:
    lab = Lab(tmp_path)
    lab.edit(
        FILE,
        "differs: [sft.data, sft_2.data, sft_3.data]",
        "set: {sft.batch_tokens: 512, sft_3.tokens: 4096}, differs: [sft.data]",
    )
    plan = lab.plan(STUDY)
    found = [plan.stages[one].spec for _, one in path_of(plan, "three")[1:]]
    assert [one.seed for one in found] == [0, 1000, 2000]  # type: ignore[attr-defined]
    assert [(one.batch_tokens, one.tokens) for one in found] == [(512, 8192), (512, 8192), (512, 4096)]  # type: ignore[attr-defined]


def test_rounds_vary_with_their_stage(tmp_path: Path) -> None:
    lab = Lab(tmp_path)
    lab.edit(FILE, "seeds: {vary: [base, sft]}", "seeds: {vary: [sft], values: [0, 1]}")
    plan = lab.plan(STUDY)
    rows = [row for row in plan.stages[plan.report].spec.arms if row.arm == "three"]  # type: ignore[attr-defined]
    assert len({part.digest for row in rows for part in row.path}) == 7


def test_a_path_without_rounds_is_as_it_was(tmp_path: Path) -> None:
    tree = {"arms": {"a": {"path": ["base", "sft"]}}, "stages": {"base": {"kind": "pretrain"}, "sft": {"kind": "sft"}}}
    assert with_rounds(tree, KeyPlace("study")) is tree


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (THREE, THREE.replace("repeat: 3", "repeat: 1"), "path.1.repeat = 1: must be a number of rounds from 2 to 100"),
        (THREE, THREE.replace("repeat: 3", "times: 3"), "must be {repeat: TIMES, stages: [names]}"),
        (THREE, THREE.replace("[sft]", "[]"), "path.1.stages = []: must be a list of stages"),
        (THREE, THREE.replace("[sft]", "[solve, sft]"), "'solve' is a generate stage, which starts from no model of a round, or leaves none for the next; repeat stages that train; a set names a generate or evaluate stage itself, with arm: before"),
        (THREE, THREE.replace("[sft]", "[base]"), "'base' is a pretrain stage, which starts from no model"),
        (THREE, THREE.replace("[sft]", "[stf]"), "no such stage; did you mean 'sft'?"),
        (THREE, THREE.replace("[base, {", "[base, sft, {"), "'sft' is repeated, and is in the path by itself, too"),
        (THREE, THREE + ", grid: {sft.tokens: [512, 1024]}", "the stage is repeated, and an axis reaches one stage"),
        ("  eval: {", "  sft_2: {kind: sft, data: {first: 1.0}}\n  eval: {", "stages.sft_2: is the name of a round of a repeated stage"),
        ("data: {corpus: 1.0}, val", "data: {solved: 1.0}, val", "starts from no model of a path; name an arm"),
        ("  base: {path", "  before: {path", "choose another name; `arm: before` of a set"),
    ],
)  # fmt: skip
def test_what_cannot_chain_is_refused(tmp_path: Path, old: str, new: str, said: str) -> None:
    lab = Lab(tmp_path)
    lab.edit(FILE, old, new)
    with pytest.raises(UserError) as error:
        lab.plan(STUDY)
    assert said in str(error.value)
    assert str(error.value).startswith("configs/study/methods/rounds.yaml:")
