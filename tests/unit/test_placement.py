"""The papers of docs/papers.md: a row that works names a contrast that is planned, ran, and acts."""

import functools
import gzip
import json
import re
import runpy
from pathlib import Path
from typing import Any

import pytest
import torch
import zoo_cases
from conftest import ROOT
from rl_cases import batch_of, now_of

from interplay.core.artifact import write_json
from interplay.core.digest import canonical
from interplay.core.metrics import read
from interplay.kinds.stages import leaf_differences
from interplay.model import folder, heads
from interplay.model.trainer_spec import TuneOptimizer
from interplay.rl import loop
from interplay.rl.reward_spec import ModelReward, terms_of
from interplay.rl.spec import Method, RLSpec
from interplay.study.expand import plan_study
from interplay.study.plan import Plan, Stage, flat_name
from tools.reference import lists

PLACED = lists.evidence(ROOT)
ROWS = [row for rows in PLACED.values() for row in rows]
WORKS = [row for row in ROWS if row.status == "works"]
NAMES = [row.paper for row in WORKS]
WORLDS = {
    "methods/turns": "safe",
    "methods/turn_credit": "locks",
    "methods/turn_fight": "locks",
    "methods/seats": "tic_tac_toe",
    "methods/context_kinds": "tic_tac_toe",
    "methods/roles": "asked",
    "methods/experience": "doors",
    "methods/pages": "safe",
}
READS = {"data": ("data.", "corpus"), "judges": ("reward.",), "library": ("library",)}


@functools.cache
def planned(study: str, scale: str) -> Plan:
    return plan_study(ROOT / "configs", study, scale)


def stages_of(plan: Plan, arm: str) -> dict[str, Stage]:
    """The path of an arm at its first seed and its evaluations, by name."""
    (row, *_) = [row for row in plan.report_spec().arms if row.arm == arm]
    digests = {one.name: one.digest for one in row.path} | row.evaluations
    return {name: plan.stages[digest] for name, digest in digests.items()}


def tree(stage: Stage) -> dict[str, Any]:
    """A stage's spec, with what it reads below `data`, and the reward models that pay it below `judges`."""
    read = {name: {role: of for role, of in stage.deps.items() if role.startswith(those)} for name, those in READS.items()}
    return {**canonical(stage.spec), **read}


def test_every_paper_has_one_row() -> None:
    names, ids = [row.paper for row in ROWS], [row.id for row in ROWS if row.id]
    assert {heading: len(rows) for heading, rows in PLACED.items()} == {lists.CORE: 72, lists.TURNS: 81, lists.NEAR: 66}
    assert len(names) == len(set(names))
    assert len(ids) == len(set(ids)) == 81 + 66
    assert all(bool(row.id) == (heading != lists.CORE) for heading, rows in PLACED.items() for row in rows)
    assert all(re.fullmatch(r"[ABC]\d{3}", one) for one in ids)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.paper)
def test_a_row_says_what_its_status_asks_for(row: lists.Evidence) -> None:
    shown = (row.study, row.arm, row.control, row.key, row.ran, row.test)
    assert all(shown) and row.ran != "smoke" if row.status == "works" else row.missing
    if row.test:
        file, _, name = row.test.partition(":")
        assert re.search(rf"^def {name}\(", (ROOT / "tests/unit" / file).read_text(), re.MULTILINE), row.test


@pytest.mark.parametrize("row", WORKS, ids=NAMES)
def test_the_arm_differs_from_its_control_in_the_key_that_is_named(row: lists.Evidence) -> None:
    plan = planned(row.study, row.ran)
    arm, control = stages_of(plan, row.arm), stages_of(plan, row.control)
    name, _, key = row.key.partition(".")
    if name == "path":
        assert sorted(arm) == sorted(control)
        assert list(arm) != list(control)
        return
    if not key:
        assert name in arm.keys() - control.keys()
        return
    found = leaf_differences(tree(arm[name]), tree(control[name]))
    assert [leaf for leaf in found if leaf == key or leaf.startswith((f"{key}.", f"{key}["))], sorted(found)


@pytest.mark.parametrize("row", WORKS, ids=NAMES)
def test_both_arms_are_in_the_committed_result(row: lists.Evidence) -> None:
    result = json.loads(gzip.decompress((ROOT / f"docs/results/{flat_name(row.study, row.ran)}.json.gz").read_bytes()))
    assert {row.arm, row.control} <= result["arms"].keys()


def methods_of(row: lists.Evidence) -> dict[str, tuple[dict[str, Any], dict[str, Any]]]:
    """Arm and control -> method and reward of the stage that the row's key is of."""
    plan, name = planned(row.study, row.ran), row.key.partition(".")[0]
    specs = {arm: canonical(stages_of(plan, arm)[name].spec) for arm in (row.arm, row.control)}
    for method in (spec["method"] for spec in specs.values()):  # a step here has 48 completions of some ten tokens
        if method["sampler"]["name"] == "phases":
            method["sampler"]["bounds"] = [0.5, 1.0]  # ten prompts of 10 to 13 tokens make two phases
        for term in method["shaping"]:
            term |= {"marker": ","} if term["name"] == "units" else {}  # completions have one "#"
        if method["continuation"]["name"] == "tree":
            method["continuation"]["segment"] = 4
        for edit in method["edits"]:
            edit |= {"tokens": 200} if edit["name"] == "token_budget" else {}
    for spec in specs.values():
        spec["reward"] = (
            {"name": "steps"} if spec["reward"]["name"] == "subproblems" else spec["reward"]
        )  # ten problems have no blocks
    return {arm: (spec["method"], spec["reward"]) for arm, spec in specs.items()}


METHODS = [row for row in WORKS if row.key.split(".")[1:2] in (["method"], ["reward"])]


def judges_of(reward: Any, task: str, at: Path) -> dict[str, Path]:
    """Reward models for the terms that ask for one: the tiny model with heads that were drawn, others for each term."""
    found, init = {}, zoo_cases.inputs(task)["init"]
    for number, term in enumerate(terms_of(reward)):
        if isinstance(term, ModelReward):
            found[term.model] = out = at / f"{task}.judge{number}"
            model = heads.init_reward_model(folder.load_decoder(init / "model"), 1, number)
            heads.save_reward_model(model, out / "model", init / "tokenizer")
            write_json(out / "record.json", {"spec": {"dtype": "float32"}, "metrics": {}, "files": {}})
    return found


@functools.cache
def weights_after(given: str, steps: int, at: Path) -> torch.Tensor:
    """Of a tiny model that was taught a little: all, in one vector, after steps of RL on ten problems with this method and reward.
    Noise is keyed by seed, step, prompt and place, so two runs differ where a member makes them differ."""
    task, method, reward = json.loads(given)
    few = 2 if method["sampler"]["name"] == "custom" else 6  # a sampler of ops finds two prompts of the second
    asked = {"method": method, "reward": reward, "mix": [1.0], "steps": steps, "prompts_per_step": few, "minibatches": 2}
    asked |= {"max_completion_length": zoo_cases.TASKS[task][2], "optimizer": TuneOptimizer(learning_rate=1e-3)}
    spec, out = RLSpec.model_validate(asked), at / f"{abs(hash(given))}.{steps}"
    torch.set_num_threads(1)
    opponents = {"seat.0": zoo_cases.inputs(task)["init"]} if "seat.0" in given else {}
    loop.train_policy(spec, zoo_cases.inputs(task) | judges_of(spec.reward, task, at) | opponents, out, zoo_cases.HOW)
    assert len(read(out)) == steps
    return torch.nn.utils.parameters_to_vector(folder.load_decoder(out / "model").parameters()).detach()


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("runs")


@pytest.mark.parametrize("row", METHODS, ids=lambda row: row.paper)
def test_exchanging_the_member_for_its_control_moves_the_model_otherwise(row: lists.Evidence, runs: Path) -> None:
    """In one step; in three or nine where it goes by what earlier ones left, such as a replay or a phase of the run."""
    task = WORLDS.get(row.study, "")
    arm, control = (
        json.dumps([task or zoo_cases.task_of("", Method.model_validate(method)), method, reward])
        for method, reward in methods_of(row).values()
    )
    assert any(not torch.equal(weights_after(arm, steps, runs), weights_after(control, steps, runs)) for steps in (1, 3, 9))


def test_the_entropic_advantage_by_hand() -> None:
    """exp(r ln 3) of rewards 1, 0, 0, 0 are 3, 1, 1, 1, of mean 1.5; a group of equal rewards has none."""
    advantage = runpy.run_path(str(ROOT / "configs/study/methods/entropic.py"))["advantage"]
    batch = batch_of([1.0, 0.0, 0.0, 0.0, 0.5, 0.5], [0, 0, 0, 0, 1, 1])
    found = advantage(batch, now_of(), beta=float(torch.tensor(3.0).log()))
    assert found.shape == batch.mask().shape
    assert found[:, 0].tolist() == pytest.approx([1.0, -1 / 3, -1 / 3, -1 / 3, 0.0, 0.0], abs=1e-6)
