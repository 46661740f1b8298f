"""Twelve confounds, each planted in the records of a real study, whose scores come with the project: the right one is named, no other."""

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from conftest import ROOT

from interplay.api import frames
from interplay.core import artifact
from interplay.report.spec import Change, Registration, ReportSpec
from interplay.report.stats import confounds, frame
from interplay.report.write import answers, page
from interplay.results import storage
from interplay.study.expand import plan_study

PLAN = plan_study(ROOT / "configs", "demo", "laptop")
SPEC = PLAN.report_spec()
ARMS = ("base", "rl_edge", "rl_within", "gold_sft")
LIFTS = "RL at the edge lifts the edge"


class Study:
    """The records of the study in a folder, to be edited."""

    def __init__(self, root: Path) -> None:
        self.root, self.spec = root, SPEC

    def folders(self, arm: str, stage: str) -> list[Path]:
        """Of one stage of an arm, `eval` included, at all seeds."""
        rows = [row for row in self.spec.arms if row.arm == arm]
        found = [{**{one.name: one.digest for one in row.path}, **row.evaluations}[stage] for row in rows]
        return [artifact.find(self.root, digest) for digest in found]

    def record(self, folder: Path, change: Callable[[dict[str, Any]], None]) -> None:
        record = json.loads((folder / "record.json").read_text())
        change(record)
        (folder / "record.json").write_text(json.dumps(record))

    def score(self, folder: Path, band: str, of: Callable[[pd.DataFrame], Any]) -> None:
        """Right samples of the prompts of a band."""
        prompts = pd.read_parquet(folder / "prompts.parquet")
        here = prompts["band"] == band
        for column in ("strict", "answer"):
            prompts.loc[here, column] = of(prompts[here].assign(right=prompts[here][column]))
        prompts.to_parquet(folder / "prompts.parquet")

    def results(self) -> frame.Results:
        digests = {digest for row in self.spec.arms for digest in (*(one.digest for one in row.path), *row.evaluations.values())}
        inputs = {path.parent.name: path.parent for path in self.root.glob("*/*/record.json")}
        assert digests <= inputs.keys()
        return frame.read_results(self.spec, inputs)

    def names(self) -> list[str]:
        return [one.name for one in confounds.find_confounds(self.results())]


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("kept")
    storage.unpack_bundle(storage.bundle_path(PLAN, ROOT), PLAN, root / "results")
    return root / "results" / "studies" / "demo.laptop" / "records"


@pytest.fixture
def study(kept: Path, tmp_path: Path) -> Study:
    return Study(Path(shutil.copytree(kept, tmp_path / "results")))


def no_steps(study: Study) -> None:
    for folder, start in zip(study.folders("rl_edge", "rl"), study.folders("base", "base"), strict=True):
        files = json.loads((start / "record.json").read_text())["files"]
        study.record(folder, lambda record, files=files: record.update(files=files))


def leaked_answers(study: Study) -> None:
    test = pd.read_parquet(
        next(iter({folder for folder in study.root.glob("problems/*") if is_test(study, folder)})) / "keys.parquet"
    )
    for folder in study.root.glob("problems/*"):
        if not is_test(study, folder):
            keys = pd.read_parquet(folder / "keys.parquet")
            keys.loc[: len(test) // 10, "key"] = test["key"][: len(test) // 10 + 1].tolist()
            keys.to_parquet(folder / "keys.parquet")
            return


def is_test(study: Study, folder: Path) -> bool:
    evaluation = study.folders("base", "eval")[0]
    return json.loads((evaluation / "record.json").read_text())["deps"]["data"] == folder.name


def lucky_base(study: Study) -> None:
    study.score(study.folders("base", "eval")[0], "edge", lambda rows: 0)


def one_base(study: Study) -> None:
    study.spec = SPEC.model_copy(update={"arms": [row for row in SPEC.arms if row.seed == 0]})


def broken_arm(study: Study) -> None:
    for folder in study.folders("rl_edge", "eval"):
        study.score(folder, "id", lambda rows: rows["right"] // 4)


def reward_hack(study: Study) -> None:
    for folder in study.folders("rl_edge", "rl"):
        lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
        for line, reward in zip(lines, np.linspace(0.3, 0.9, len(lines)), strict=True):
            line.update(reward=reward + line["strict"] / 10, strict=0.3, answer=0.4)
        (folder / "metrics.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))


def length_for_depth(study: Study) -> None:
    for folder in study.folders("base", "eval"):
        study.record(folder, lambda record: record["metrics"]["band"]["edge"].update(truncated=0.35, length=61.0))


LENGTHS = {"id": 25.0, "id_long": 41.0, "edge": 40.0, "edge_long": 60.0}


def gain_by_length(study: Study) -> None:
    """Half of the edge asks for longer solutions, half of op 4 for such as the edge has; RL at the edge gains on the latter as it
    does there, and not where the edge is longer."""
    for arm in ARMS:
        for folder in study.folders(arm, "eval"):
            prompts = pd.read_parquet(folder / "prompts.parquet")
            half = prompts.index % 2 == 1
            for band, chosen in (("edge", prompts["band"] == "edge"), ("id", prompts["op"] == 4)):
                here = half & chosen
                prompts.loc[here, "band"] = f"{band}_long"
                right = prompts["n"] * (0.9 if (arm, band) == ("rl_edge", "id") else 0.5)
                for column in ("strict", "answer"):
                    prompts.loc[here, column] = right[here].round().astype(int)
            prompts.to_parquet(folder / "prompts.parquet")
            cells = {band: {"length": length, "truncated": 0.0} for band, length in LENGTHS.items()}
            study.record(folder, lambda record, cells=cells: record["metrics"].update(band=cells))


def unequal_compute(study: Study) -> None:
    def double(record: dict[str, Any]) -> None:
        for key in ("completions", "completion_tokens", "prompt_tokens"):
            record["metrics"][key] *= 2

    for folder in study.folders("rl_edge", "rl"):
        study.record(folder, double)


def tuned_contender(study: Study) -> None:
    """Two rates, of which the better one has the claims."""
    rows, claims = [], []
    for row in SPEC.arms:
        made = {"rl_edge": "rl_edge[rate=0.005]", "rl_within": "rl_within"}.get(row.arm, row.arm)
        rows.append(row.model_copy(update={"arm": made, "control": None}))
        if row.arm == "rl_within":
            rows.append(row.model_copy(update={"arm": "rl_edge[rate=0.05]", "control": None}))
    for claim in SPEC.claims:
        test = claim.test.model_copy(
            update={key: "rl_edge[rate=0.005]" for key in ("arm", "against") if getattr(claim.test, key) == "rl_edge"}
        )
        claims.append(claim.model_copy(update={"test": test}))
    study.spec = SPEC.model_copy(update={"arms": rows, "claims": claims})


def changed_threshold(study: Study) -> None:
    change = Change(key=f"claims[{LIFTS}].test.at_least", before="0.1", after="0.05")
    of = Registration(file="f.json", date="2026-11-26", commit="", late=False, changes=[change])
    study.spec = SPEC.model_copy(update={"registration": of})


def mixed_machines(study: Study) -> None:
    for arm in ARMS:
        for folder in study.folders(arm, "eval"):
            cpu = "AMD EPYC" if arm == "rl_edge" else "Intel Xeon"
            (folder / "telemetry.json").write_text(json.dumps({"environment": {"cpu": cpu}}))


def everywhere(of: Callable[[pd.DataFrame], Any]) -> Callable[[Study], None]:
    def plant(study: Study) -> None:
        for folder in {folder for arm in ARMS for folder in study.folders(arm, "eval")}:
            study.score(folder, "edge", of)

    return plant


PLANTS = {
    "no steps": no_steps,
    "leaked answers": leaked_answers,
    "lucky base": lucky_base,
    "broken arm": broken_arm,
    "reward hack": reward_hack,
    "length for depth": length_for_depth,
    "unequal compute": unequal_compute,
    "tuned contender": tuned_contender,
    "changed threshold": changed_threshold,
    "mixed machines": mixed_machines,
    "ceiling": everywhere(lambda rows: rows["n"]),
    "floor": everywhere(lambda rows: 0),
}


def test_the_study_as_it_was_run_has_no_confound(study: Study) -> None:
    assert study.names() == []


@pytest.mark.parametrize("name", PLANTS)
def test_the_planted_confound_is_named_and_no_other(study: Study, name: str) -> None:
    PLANTS[name](study)
    assert set(study.names()) == {name}


def test_an_arm_that_loses_a_third_of_what_its_start_masters_is_named(study: Study) -> None:
    for folder in study.folders("base", "eval"):
        study.score(folder, "id", lambda rows: rows["n"])
    for folder in study.folders("rl_edge", "eval"):
        study.score(folder, "id", lambda rows: rows["n"] * 2 // 3)
    named = [one.says for one in confounds.find_confounds(study.results()) if one.name == "broken arm"]
    assert any(re.fullmatch(r"rl_edge lost more than a quarter of what base scores on id: 100 → 6\d %", says) for says in named)


def test_a_gain_that_follows_length_and_not_op_is_named_with_what_it_gains_at_both(study: Study) -> None:
    gain_by_length(study)
    found, *others = confounds.find_confounds(study.results())
    assert {one.name for one in (found, *others)} == {"length for depth"}
    assert found.claims == (LIFTS,)
    assert re.fullmatch(
        r"rl_edge gains \+\d+\.\d on edge, \+37\.5 on id_long, of fewer ops and as long, and 0\.0 on edge_long, of its ops at 60 in "
        r"place of 40 tokens: the gain follows length and not op",
        found.says,
    )


def test_a_gain_at_every_length_of_the_ops_follows_op(study: Study) -> None:
    gain_by_length(study)
    for folder in study.folders("rl_edge", "eval"):
        study.score(folder, "edge_long", lambda rows: rows["n"])
    assert study.names() == []


@pytest.mark.parametrize(("factor", "named"), [(2, ["unequal compute"]), (1, [])])
def test_training_without_rollouts_of_two_kinds_is_compared_by_tokens(study: Study, factor: int, named: list[str]) -> None:
    rows = []
    for row in [row for row in SPEC.arms if row.arm == "gold_sft"]:
        gold = artifact.find(study.root, row.path[-1].digest)
        made = Path(shutil.copytree(gold, study.root / "midtrain" / f"{gold.name[:-1]}z"))
        study.record(made, lambda record: record.update(kind="midtrain"))
        study.record(made, lambda record: record["metrics"].update(tokens=factor * record["metrics"]["tokens"]))
        path = [*row.path[:-1], row.path[-1].model_copy(update={"digest": made.name, "kind": "midtrain"})]
        rows += [row, row.model_copy(update={"arm": "mid", "path": path})]
    test = {"difference": "strict_pass@1", "band": "edge", "arm": "gold_sft", "against": "mid", "at_least": 0.0}
    claim = SPEC.claims[0].model_validate({"says": "SFT teaches more", "test": test})
    base = [row for row in SPEC.arms if row.arm == "base"]
    study.spec = SPEC.model_copy(update={"arms": base + rows, "claims": [claim], "match": []})
    assert study.names() == named


def test_unequal_compute_of_two_arms_is_one_line_whichever_way_claims_compare_them(study: Study) -> None:
    unequal_compute(study)
    (found,) = [one for one in confounds.find_confounds(study.results()) if "rl_within" in one.says]
    turned = [
        claim.model_copy(
            update={
                "says": "turned",
                "test": claim.test.model_copy(update={"arm": claim.test.against, "against": claim.test.arm}),
            }
        )
        for claim in SPEC.claims
        if claim.says == found.claims[0]
    ]
    study.spec = SPEC.model_copy(update={"claims": [*SPEC.claims, *turned]})
    (both,) = [one for one in confounds.find_confounds(study.results()) if "rl_within" in one.says]
    assert (both.says, both.claims) == (found.says, (*found.claims, "turned"))


def test_a_checkpoint_is_charged_for_the_steps_that_lead_to_it(study: Study) -> None:
    """A run of twice the steps, of which the middle is taken, has trained on as much as one of half its length."""
    (gold,) = [row for row in SPEC.arms if row.arm == "gold_sft" and row.seed == SPEC.arms[0].seed]
    whole = artifact.find(study.root, gold.path[-1].digest)
    made = Path(shutil.copytree(whole, whole.parent / f"{whole.name[:-1]}z"))
    steps = artifact.read_json(whole / "record.json")["metrics"]["steps"]
    study.record(made, lambda record: record["metrics"].update(steps=2 * steps, tokens=2 * record["metrics"]["tokens"]))
    test = {"difference": "strict_pass@1", "band": "edge", "arm": "gold_sft", "against": "long", "at_least": 0.0}
    claim = SPEC.claims[0].model_validate({"says": "Half of a long run is a short one", "test": test})
    for step, named in ((steps, []), (None, ["unequal compute"])):
        path = [*gold.path[:-1], gold.path[-1].model_copy(update={"digest": made.name, "step": step})]
        rows = [*(row for row in SPEC.arms if row.arm == "base"), gold, gold.model_copy(update={"arm": "long", "path": path})]
        study.spec = SPEC.model_copy(update={"arms": rows, "claims": [claim], "match": []})
        assert [one.name for one in confounds.find_confounds(study.results()) if one.name == "unequal compute"] == named


def test_every_detector_is_planted() -> None:
    assert list(PLANTS) == list(confounds.DETECTORS)


def test_one_base_alone_may_be_a_lucky_one(study: Study) -> None:
    one_base(study)
    assert set(study.names()) == {"lucky base"}


def test_page_and_verdicts_name_the_confound_and_a_stage_without_steps_is_not_tested(study: Study, tmp_path: Path) -> None:
    no_steps(study)
    spec = ReportSpec.model_validate({**study.spec.model_dump(), "figures": {}, "tables": {}})
    made = answers.answer_study(study.results()._replace(spec=spec))
    from interplay.report.stats import provenance

    shown = page.render_page(made, provenance.of_inputs(spec, made.results.folders), [])
    assert "Confound, no steps: rl_edge: rl left the weights as they were." in shown
    assert {item.verdict for item in made.judged if "rl_edge" in (item.claim.test.arm, item.claim.test.against)} == {"not tested"}
    lines = frames.verdict_lines(PLAN, study.root)
    assert lines[-1] == "Confound, no steps: rl_edge: rl left the weights as they were"
