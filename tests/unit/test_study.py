"""From YAML to plan: sharing, replacing, axes and seeds."""

import functools
import random
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import yaml
from conftest import ROOT, examples
from hypothesis import given, strategies as st
from key_order import meaning, reordered, reversed_maps
from omegaconf import OmegaConf

from interplay.core.model import KeyPlace, UserError
from interplay.run.graph import Graph
from interplay.study import compose as composition
from interplay.study.arms import apply_changes
from interplay.study.expand import plan_study
from interplay.study.plan import Plan

CONFIGS = ROOT / "configs"
compose = composition.compose_study
"""Itself: within tests, its results are remembered (conftest)."""


@pytest.fixture
def configs(tmp_path: Path) -> Path:
    return Path(shutil.copytree(CONFIGS, tmp_path / "configs"))


def write(configs: Path, name: str, old: str, new: str) -> None:
    path = configs / "study" / f"{name}.yaml"
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new))


def models(plan: Plan, kind: str) -> list[str]:
    return [digest for digest, stage in plan.stages.items() if stage.kind == kind]


def test_edge_shares_all_of_quickstarts_stages_but_the_report() -> None:
    quickstart, edge = plan_study(CONFIGS, "quickstart", "laptop"), plan_study(CONFIGS, "edge", "laptop")
    assert set(quickstart.stages) - set(edge.stages) == {quickstart.report}


def test_every_distinct_stage_is_planned_once_and_after_what_it_needs() -> None:
    plan = plan_study(CONFIGS, "edge", "laptop")
    seen: set[str] = set()
    for digest, stage in plan.stages.items():
        assert set(stage.deps.values()) <= seen
        seen.add(digest)


def test_seeds_repeat_only_the_stages_that_vary() -> None:
    shared, own = plan_study(CONFIGS, "edge", "smoke"), plan_study(CONFIGS, "edge_bases", "smoke")
    assert [len(models(shared, kind)) for kind in ("pretrain", "sft", "rl")] == [1, 3, 12]
    assert [len(models(own, kind)) for kind in ("pretrain", "sft", "rl")] == [3, 3, 12]


def test_a_model_is_labelled_with_the_first_arm_that_has_it_its_stage_and_its_seed() -> None:
    plan = plan_study(CONFIGS, "quickstart", "smoke")
    labels = {stage.label for stage in plan.stages.values() if stage.kind in ("pretrain", "rl")}
    assert labels == {"base/base@0", "rl_edge/rl@0", "rl_hard/rl@0"}


def test_a_stage_with_a_seed_of_its_own_adds_that_of_the_arm(configs: Path) -> None:
    write(configs, "quickstart", "seeds: {values: [0], vary: [base, rl]}", "seeds: {values: [0, 1, 2], vary: [base, rl]}")
    write(configs, "quickstart", "rl: {kind: rl, data: {edge: 1.0}}", "rl: {kind: rl, data: {edge: 1.0}, seed: 40}")
    plan = plan_study(configs, "quickstart", "smoke")
    seeds = {kind: {plan.stages[digest].spec.seed for digest in models(plan, kind)} for kind in ("pretrain", "rl")}
    assert seeds == {"pretrain": {0, 1, 2}, "rl": {40, 41, 42}}


def test_calibrating_the_edge_leaves_the_base_alone(configs: Path) -> None:
    before = models(plan_study(configs, "edge", "smoke"), "pretrain")
    scale = configs / "scale/smoke.yaml"
    scale.write_text(scale.read_text().replace("edge: [2]", "edge: [3]"))
    assert models(plan_study(configs, "edge", "smoke"), "pretrain") == before


def test_a_comment_changes_no_digest(configs: Path) -> None:
    before = set(plan_study(configs, "edge", "smoke").stages)
    for path in configs.rglob("*.yaml"):
        path.write_text(path.read_text() + "\n# a thought\n")
    assert set(plan_study(configs, "edge", "smoke").stages) == before


def test_renaming_a_problem_set_changes_no_model(configs: Path) -> None:
    before = plan_study(configs, "quickstart", "smoke")
    write(configs, "quickstart", "edge: {band: edge, split: rl}", "frontier: {band: edge, split: rl}")
    write(configs, "quickstart", "rl: {kind: rl, data: {edge: 1.0}}", "rl: {kind: rl, data: {frontier: 1.0}}")
    after = plan_study(configs, "quickstart", "smoke")
    assert set(before.stages) - {before.report} == set(after.stages) - {after.report}


def test_set_replaces_a_mix_and_never_merges_it() -> None:
    stages = {"rl": {"data": {"edge": 1.0}, "reward": {"name": "process", "form": "strict"}}}
    changed = apply_changes(stages, {"rl.data": {"hard": 1.0}, "rl.reward.form": "dense"}, KeyPlace("here"))
    assert changed == {"rl": {"data": {"hard": 1.0}, "reward": {"name": "process", "form": "dense"}}}
    assert stages["rl"]["data"] == {"edge": 1.0}


def test_a_key_is_set_after_the_whole_that_it_leads_into_wherever_it_is_written() -> None:
    stages = {"rl": {"sampler": {"name": "uniform"}}}
    whole, part, deep = ("rl.sampler", {"name": "phases", "at": {"a": 1}}), ("rl.sampler.unit", "share"), ("rl.sampler.at.b", 2)
    expected = {"rl": {"sampler": {"name": "phases", "at": {"a": 1, "b": 2}, "unit": "share"}}}
    assert apply_changes(stages, dict([whole, part, deep]), KeyPlace("here")) == expected
    assert apply_changes(stages, dict([deep, part, whole]), KeyPlace("here")) == expected
    with pytest.raises(UserError, match=r"rl\.sampler\.name\.x: 'name' holds a value"):
        apply_changes(stages, {"rl.sampler.name.x": 1, "rl.sampler": {"name": "phases"}}, KeyPlace("here"))


SET_IN_PARTS = ["cog_drift/ladder", "curricula/showdown", "methods/showdown", "methods/zero_variance"]
"""Studies with arms that set a whole and keys within it."""


def test_files_with_all_keys_in_reverse_order_make_the_same_plan(configs: Path) -> None:
    """Each file that the composition reads, written again as Hydra's YAML reader understands it."""
    before = [meaning(plan_study(configs, study, "smoke")) for study in SET_IN_PARTS]
    groups = [path for path in configs.glob("*/*.yaml") if path.parent.name != "study"]
    for path in [*groups, *(configs / "study" / f"{study}.yaml" for study in SET_IN_PARTS)]:
        text = path.read_text()
        head = "".join(f"{line}\n" for line in text.splitlines() if line.startswith("# @package"))
        tree = reversed_maps(OmegaConf.to_container(OmegaConf.create(text), resolve=False))
        path.write_text(head + yaml.dump(tree, sort_keys=False, Dumper=_WithoutAnchors))
    assert [meaning(plan_study(configs, study, "smoke")) for study in SET_IN_PARTS] == before


class _WithoutAnchors(yaml.SafeDumper):
    """Writes a value that occurs twice twice: an alias before its anchor is no YAML."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


composed = functools.cache(compose)


def test_many_plans_compose_each_study_and_each_scale_once_and_find_the_same(configs: Path) -> None:
    """Values may lead from one into the other; a study with a fault says the same."""
    (configs / "study/whole.yaml").write_text('# @package _global_\nstudy: {question: "${scale.seeds}"}\nscale: {seeds: 7}\n')
    (configs / "study/broken.yaml").write_text("question: ${scale.nothing}\n")
    by_hydra, asked, parts = composition._by_hydra, list[tuple[str, str]](), composition.Parts()
    with mock.patch.object(composition, "_by_hydra", lambda configs, *names: asked.append(names) or by_hydra(configs, *names)):
        for study in ("quickstart", "cog_drift/ladder", "whole", "broken"):
            for scale in ("smoke", "coffee"):
                found = [_tree_or_error(configs, study, scale, parts), _tree_or_error(configs, study, scale, None)]
                assert found[0] == found[1]
                assert isinstance(found[0], str) == (study == "broken")
    once = [(study, "") for study in ("quickstart", "cog_drift/ladder", "whole", "broken")]
    assert [asked.count(part) for part in [*once, ("", "smoke"), ("", "coffee")]] == [1] * 6


@pytest.mark.parametrize(
    ("order", "own", "small"),
    [(["_self_", "study", "scale"], {"scale": {"seeds": 5}}, "{}"), (["scale", "study", "_self_"], {}, "seeds: 5")],
)
def test_a_config_of_another_order_is_composed_as_hydra_does(
    configs: Path, order: list[str], own: dict[str, Any], small: str
) -> None:
    """A study changes what config.yaml says before it, and what a scale says before it."""
    chosen = {"study": "quickstart", "scale": "laptop"}
    defaults = [{name: chosen[name]} if name in chosen else name for name in order]
    (configs / "config.yaml").write_text(yaml.safe_dump({"defaults": defaults, **own}))
    (configs / "study/whole.yaml").write_text("# @package _global_\nstudy: {question: q}\nscale: {seeds: 7}\n")
    (configs / "scale/small.yaml").write_text(f"{small}\n")
    for parts in (None, composition.Parts()):
        assert compose(configs, "whole", "small", parts=parts)["scale"]["seeds"] == 7


def _tree_or_error(configs: Path, study: str, scale: str, parts: composition.Parts | None) -> Any:
    try:
        return compose(configs, study, scale, parts=parts)
    except UserError as error:
        return str(error)


@examples(10)
@given(study=st.sampled_from(SET_IN_PARTS), seed=st.integers(0, 2**32))
def test_keys_in_any_order_make_the_same_plan(study: str, seed: int) -> None:
    chance = random.Random(seed)
    trees = [
        composed(CONFIGS, study, "smoke"),
        reordered(composed(CONFIGS, study, "smoke"), lambda keys: _shuffled(keys, chance)),
    ]
    plans = []
    for tree in trees:
        with mock.patch.object(composition, "compose_study", lambda *_, tree=tree: tree):
            plans.append(meaning(plan_study(CONFIGS, study, "smoke")))
    assert plans[0] == plans[1]


def _shuffled(keys: list[str], chance: random.Random) -> list[str]:
    return chance.sample(keys, len(keys))


def test_set_on_a_stage_that_is_not_there_names_the_nearest() -> None:
    with pytest.raises(UserError, match="did you mean 'base'"):
        apply_changes({"base": {}}, {"bsae.data": 1}, KeyPlace("here"))


def test_a_custom_functions_text_is_part_of_the_identity(configs: Path) -> None:
    write(
        configs,
        "quickstart",
        "rl: {kind: rl, data: {edge: 1.0}}",
        "rl: {kind: rl, data: {edge: 1.0}, reward: {name: custom, function: 'mine.py:score'}}",
    )
    (configs / "study/mine.py").write_text("def score(problems, completions, verdicts):\n    return [1.0] * len(completions)\n")
    first = models(plan_study(configs, "quickstart", "smoke"), "rl")
    (configs / "study/mine.py").write_text("def score(problems, completions, verdicts):\n    return [0.0] * len(completions)\n")
    assert set(first).isdisjoint(models(plan_study(configs, "quickstart", "smoke"), "rl"))


def test_a_step_that_is_no_whole_number_of_rows_is_refused_before_any_job(configs: Path) -> None:
    write(configs, "quickstart", "base: {kind: pretrain,", "base: {kind: pretrain, batch_tokens: 1000,")
    must = r"quickstart\.yaml:18: stages\.base\.batch_tokens = 1000: must be a multiple of the corpus' sequence_length, 256"
    with pytest.raises(UserError, match=must):
        plan_study(configs, "quickstart", "laptop")


def test_a_custom_function_outside_the_studys_folder_is_refused(configs: Path) -> None:
    write(
        configs,
        "quickstart",
        "rl: {kind: rl, data: {edge: 1.0}}",
        "rl: {kind: rl, data: {edge: 1.0}, reward: {name: custom, function: '../../x.py:score'}}",
    )
    with pytest.raises(UserError, match="the file in the study's folder"):
        plan_study(configs, "quickstart", "smoke")


def test_an_arm_may_replace_a_key_of_the_task_for_all_its_data(configs: Path) -> None:
    write(
        configs,
        "quickstart",
        "rl_hard: {path: [base, rl], control: rl_edge, set: {rl.data: {hard: 1.0}}}",
        "rl_hard: {path: [base], set: {task.modulus: 11}}",
    )
    plan = plan_study(configs, "quickstart", "smoke")
    moduli = [
        stage.spec.task.modulus for stage in plan.stages.values() if stage.kind == "problems" and stage.spec.split == "test"
    ]
    assert sorted(moduli) == [5, 11]
    assert len(models(plan, "pretrain")) == 2


def test_planning_imports_no_torch() -> None:
    """Nor anything else that takes seconds: a plan of 10,000 stages is made in three (bench/plan.py)."""
    script = (
        "import sys, pathlib; from interplay.run.graph import Graph; from interplay.study.expand import plan_study; "
        f"plan = plan_study(pathlib.Path({str(CONFIGS)!r}), 'edge', 'smoke'); "
        "Graph(pathlib.Path('results'), [plan]).missing(list(plan.stages)); "
        "print(*sorted(set(sys.modules) & {'torch', 'transformers', 'mlflow', 'pandas', 'dvc', 'snakemake'}))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""


def test_a_readable_link_that_is_right_stays(tmp_path: Path) -> None:
    """A study of thousands of stages, of which nothing is left to do, would otherwise spend its seconds on them."""
    plan = plan_study(CONFIGS, "quickstart", "smoke")
    graph = Graph(tmp_path, [plan])
    folder = tmp_path / "report" / plan.report
    folder.mkdir(parents=True)
    (folder / "record.json").write_text("{}")
    graph.link()
    links = {path: path.lstat().st_ino for path in tmp_path.glob("by-name/**/*") if path.is_symlink()}
    wrong = tmp_path / "by-name/quickstart.smoke/base/base@0"
    wrong.unlink()
    wrong.symlink_to("elsewhere")
    graph.link()
    assert wrong.resolve() == (tmp_path / "pretrain" / models(plan, "pretrain")[0]).resolve()
    assert all(path.lstat().st_ino == inode for path, inode in links.items() if path != wrong)
    assert len(links) > 5


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("answer_pass@1, strict_pass@32]", "answer_pass@1, strict_pass@4096]", r"tables\.main\.cells = 'strict_pass@4096'"),
        ("by_op: {x: op, y: strict_pass@1}", "by_op: {x: op, y: answer_pass@64}", r"figures\.by_op\.y = 'answer_pass@64'"),
        ("{value: strict_pass@1, band: id", "{value: strict_pass@33, band: id", r"claims\.0\.test\.value = 'strict_pass@33'"),
        (
            "difference: strict_pass@1, band: edge",
            "difference: strict_pass@64, band: edge",
            r"claims\.1\.test\.difference = 'strict_pass@64'",
        ),
    ],
)
def test_a_pass_rate_beyond_the_planned_samples_is_refused(configs: Path, old: str, new: str, message: str) -> None:
    write(configs, "quickstart", old, new)
    with pytest.raises(UserError, match=rf"{message}: evaluation eval of \w+ has 32 samples per prompt; give it more"):
        plan_study(configs, "quickstart", "smoke")
    write(configs, "quickstart", "eval: {kind: evaluate, data: test}", "eval: {kind: evaluate, data: test, num_samples: 4096}")
    assert plan_study(configs, "quickstart", "smoke").report


def test_samples_are_counted_where_the_column_is_evaluated_and_for_each_arm(configs: Path) -> None:
    two = "eval: {kind: evaluate, data: test, num_samples: 8}\n  often: {kind: evaluate, data: seldom}"
    write(configs, "quickstart", "eval: {kind: evaluate, data: test}", two)
    write(configs, "quickstart", "  test: {bands", "  seldom: {band: id_top, split: test}\n  test: {bands")
    write(configs, "quickstart", "evaluate: [eval]", "evaluate: [eval, often]")
    with pytest.raises(UserError, match=r"tables\.main\.cells = 'strict_pass@32': evaluation eval of base has 8 samples"):
        plan_study(configs, "quickstart", "smoke")
    write(configs, "quickstart", "columns: [id, edge, beyond, hard]", "columns: [id]")
    assert plan_study(configs, "quickstart", "smoke").report
    write(configs, "quickstart", "set: {rl.data: {hard: 1.0}}", "set: {rl.data: {hard: 1.0}, often.num_samples: 16}")
    with pytest.raises(UserError, match="evaluation often of rl_hard has 16 samples"):
        plan_study(configs, "quickstart", "smoke")


def test_a_curve_along_a_stage_needs_the_samples_of_its_evaluation(configs: Path) -> None:
    write(configs, "quickstart", "eval: {kind: evaluate, data: test}", "eval: {kind: evaluate, data: test}\n  climb: CLIMB")
    write(configs, "quickstart", "CLIMB", "{kind: evaluate, data: test, along: rl, num_samples: 4}")
    write(configs, "quickstart", "rl: {kind: rl, data: {edge: 1.0}}", "rl: {kind: rl, data: {edge: 1.0}, checkpoints: [2]}")
    write(configs, "quickstart", "evaluate: [eval]", "evaluate: [eval, climb]")
    write(configs, "quickstart", "loss: {x: step, y: loss}", "loss: {x: step, y: strict_pass@8}")
    with pytest.raises(UserError, match=r"figures\.loss\.y = 'strict_pass@8': evaluation climb has 4 samples per prompt"):
        plan_study(configs, "quickstart", "smoke")
