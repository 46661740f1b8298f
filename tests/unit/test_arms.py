"""The algebra of arms: how many there are, which, what they are called, and what is refused."""

import itertools
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from conftest import copy_configs, examples
from hypothesis import given, strategies as st

from interplay.core.model import KeyPlace, UserError
from interplay.study.arms import Combination, apply_changes, expand_axes
from interplay.study.expand import plan_study
from interplay.study.spec import Arm

OWN = {"rl.steps": 40, "rl.loss.type": "dapo", "rl.beta": 0.0}
KEYS = ["rl.steps", "rl.beta", "rl.a.b", "mid.a.b", "mid.tokens"]
AXES = st.dictionaries(st.sampled_from(KEYS), st.lists(st.integers(100, 120), min_size=1, max_size=4, unique=True), max_size=4)


def lookup(changes: Mapping[str, Any], key: str) -> Any:
    return changes.get(key, OWN.get(key))


def expanded(**arm: Any) -> dict[str, Combination]:
    return expand_axes({"rl": Arm(path=["base", "rl"], **arm)}, lookup, KeyPlace("study.yaml"))


def chosen(made: dict[str, Combination]) -> list[dict[str, Any]]:
    return [one.axes for one in made.values()]


@given(grid=AXES)
def test_a_grid_has_every_combination_once(grid: dict[str, list[int]]) -> None:
    made = chosen(expanded(grid=grid))
    assert len(made) == math.prod(len(values) for values in grid.values())
    assert made == [dict(zip(grid, values, strict=True)) for values in itertools.product(*grid.values())]


@given(keys=st.sets(st.sampled_from(KEYS), min_size=1), length=st.integers(1, 5))
def test_a_zip_walks_its_lists_in_step(keys: set[str], length: int) -> None:
    made = chosen(expanded(zip={key: [f"{key}{i}" for i in range(length)] for key in keys}))
    assert made == [{key: f"{key}{i}" for key in keys} for i in range(length)]


@given(axes=AXES.filter(bool), around=st.booleans())
def test_one_at_a_time_is_the_centre_and_one_arm_for_each_other_value(axes: dict[str, list[int]], around: bool) -> None:
    """Naming the centre's own values changes nothing."""
    centre = {key: values[0] for key, values in axes.items()}
    if not any(len(values) > 1 for values in axes.values()):
        axes = {**axes, "rl.c": [1, 2]}
        centre["rl.c"] = 1
    others = {key: values[1:] for key, values in axes.items() if values[1:]}
    made = expanded(set=centre, one_at_a_time=axes if around else others)
    assert len(made) == 1 + sum(len(values) - 1 for values in axes.values())
    assert all(len(one.axes) <= 1 for one in made.values())
    assert made["rl"].axes == {}
    assert {one.control for name, one in made.items() if name != "rl"} == {"rl"}


NESTED = ["rl.method", "rl.method.loss", "rl.method.loss.beta", "rl.steps"]


@given(keys=st.permutations(NESTED), sizes=st.lists(st.integers(0, 2), min_size=4, max_size=4))
def test_an_axis_may_lead_into_the_values_of_another_in_any_order_of_writing(keys: list[str], sizes: list[int]) -> None:
    """In each combination the inner key has its own value, and the rest is that of the outer key's."""
    trees = {
        "rl.method": [{"name": name, "loss": {"beta": beta, "clip": beta}} for name, beta in (("grpo", 1), ("gspo", 2))],
        "rl.method.loss": [{"beta": 3, "clip": 3}, {"beta": 4, "clip": 4}],
        "rl.method.loss.beta": [0, 5],
        "rl.steps": [6, 7],
    }
    grid = {key: trees[key][:size] for key, size in zip(keys, sizes, strict=True) if size}
    made = expanded(grid=grid)
    assert len(made) == math.prod(len(values) for values in grid.values())
    for one in made.values():
        rl = apply_changes({"rl": {"method": {"loss": {"beta": 8, "clip": 8}}, "steps": 8}}, one.set, KeyPlace("s"))["rl"]
        method = one.axes.get("rl.method", {"loss": {"beta": 8, "clip": 8}})
        loss = {**method["loss"], **one.axes.get("rl.method.loss", {})}
        assert rl["method"] == {**method, "loss": {**loss, "beta": one.axes.get("rl.method.loss.beta", loss["beta"])}}
        assert rl["steps"] == one.axes.get("rl.steps", 8)


def test_a_grid_over_methods_by_name_and_a_key_inside_them_plans_what_arms_written_out_plan(tmp_path: Path) -> None:
    copy_configs(tmp_path)
    file = tmp_path / "configs/study/mine.yaml"
    head = "defaults: [quickstart, _self_]\nquestion: why\nclaims: []\narms:\n"

    def digests(arms: str) -> set[str]:
        file.write_text(head + arms)
        made = plan_study(tmp_path / "configs", "mine", "smoke")
        return {digest for digest in made.stages if digest != made.report}

    arm, axes = "path: [base, rl], control: rl_edge", ["rl.method: [grpo, gspo]", "rl.method.loss.beta: [0.05, 0.1]"]
    plain = [
        f"  {method}{beta}: {{{arm}, set: {{rl.method: {method}, rl.method.loss.beta: 0.{beta}}}}}\n"
        for method in ("grpo", "gspo") for beta in ("05", "1")
    ]  # fmt: skip
    swept = [digests(f"  g: {{{arm}, grid: {{{', '.join(order)}}}}}\n") for order in (axes, axes[::-1])]
    assert swept[0] == swept[1] == digests("".join(plain))


def test_the_control_of_a_variation_is_the_centre_of_its_own_cell() -> None:
    made = expand_axes(
        {
            "base": Arm(path=["base"]),
            "rl": Arm(path=["base", "rl"], control="base", grid={"rl.steps": [1, 2]}, one_at_a_time={"rl.beta": [0.1]}),
        },
        lookup,
        KeyPlace("study.yaml"),
    )
    assert {name: one.control for name, one in made.items()} == {
        "base": None,
        "rl[steps=1]": "base",
        "rl[steps=1,beta=0.1]": "rl[steps=1]",
        "rl[steps=2]": "base",
        "rl[steps=2,beta=0.1]": "rl[steps=2]",
    }


def test_a_nested_axis_is_active_only_under_its_parents_value() -> None:
    nested = {"rl.loss.high": {"under": {"rl.loss.type": ["cispo"]}, "values": [4, 5]}}
    made = expanded(grid={"rl.loss.type": ["grpo", "cispo"]}, nested=nested)
    assert list(made) == ["rl[type=grpo]", "rl[type=cispo,high=4]", "rl[type=cispo,high=5]"]
    assert made["rl[type=grpo]"].set == {"rl.loss.type": "grpo"}


def test_a_nested_axis_may_hang_on_the_arms_own_value_and_on_another_nested_axis() -> None:
    nested = {
        "rl.loss.high": {"under": {"rl.loss.type": ["dapo"]}, "values": [4, 5]},
        "rl.loss.low": {"under": {"rl.loss.high": [5]}, "values": [1, 2]},
    }
    assert list(expanded(nested=nested)) == ["rl[high=4]", "rl[high=5,low=1]", "rl[high=5,low=2]"]


@given(grid=AXES.filter(lambda grid: sum(map(len, grid.values())) > len(grid)), data=st.data())
def test_an_exclude_takes_away_what_it_matches_and_nothing_else(grid: dict[str, list[int]], data: st.DataObject) -> None:
    everything = expanded(grid=grid)
    several = [key for key in grid if len(grid[key]) > 1]
    keys = data.draw(st.sets(st.sampled_from(several), min_size=1))
    entry = {key: data.draw(st.sampled_from(grid[key])) for key in keys}
    left = expanded(grid=grid, exclude=[entry])
    assert left == {name: one for name, one in everything.items() if not entry.items() <= one.axes.items()}
    assert len(left) < len(everything)


def test_an_exclude_sees_the_own_values_of_keys_that_stand_at_the_centre() -> None:
    made = expanded(one_at_a_time={"rl.beta": [0.1], "rl.steps": [80]}, exclude=[{"rl.beta": 0.0, "rl.steps": 80}])
    assert list(made) == ["rl", "rl[beta=0.1]"]


@given(grid=AXES, steps=AXES, alone=AXES)
def test_names_are_unique_readable_and_say_all_that_was_chosen(
    grid: dict[str, list[int]], steps: dict[str, list[int]], alone: dict[str, list[int]]
) -> None:
    steps = {key: values[:1] for key, values in steps.items() if key not in grid}
    alone = {key: values for key, values in alone.items() if key not in {**grid, **steps}}
    made = expanded(grid=grid, zip=steps, one_at_a_time=alone)
    for name, one in made.items():
        assert name.count("=") == len(one.axes)
        assert "/" not in name
        assert all(f"={value}" in name for value in one.axes.values())


def test_keys_with_the_same_last_part_are_told_apart_by_longer_ones() -> None:
    made = expanded(grid={"rl.optimizer.learning_rate": [1e-4], "mid.optimizer.learning_rate": [1e-3], "rl.steps": [3]})
    assert list(made) == ["rl[rl.optimizer.learning_rate=0.0001,mid.optimizer.learning_rate=0.001,steps=3]"]


def test_mixes_have_readable_names() -> None:
    assert list(expanded(grid={"rl.data": [{"edge": 0.5, "id": 0.5}]})) == ["rl[data=edge:0.5+id:0.5]"]


def test_a_control_with_axes_is_met_at_the_same_values() -> None:
    axes = {"rl.steps": [1, 2]}
    one = Arm(path=["base", "rl"], grid=axes)
    two = Arm(path=["base", "rl"], grid=axes, control="one", set={"rl.data": {"hard": 1.0}})
    made = expand_axes({"one": one, "two": two}, lookup, KeyPlace("study.yaml"))
    assert {name: item.control for name, item in made.items() if item.group == "two"} == {
        "two[steps=1]": "one[steps=1]",
        "two[steps=2]": "one[steps=2]",
    }


def test_a_combination_may_be_the_control_of_its_siblings() -> None:
    made = expanded(grid={"rl.steps": [1, 2, 3]}, control="rl[steps=2]")
    assert [one.control for one in made.values()] == ["rl[steps=2]", None, "rl[steps=2]"]


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "zips of unequal length": ({"zip": {"rl.a": [1, 2], "rl.b": [1]}}, "arms.rl.zip: .*rl.a has 2, rl.b has 1; give each"),
    "an axis without values": ({"grid": {"rl.a": []}}, r"arms.rl.grid.rl.a = \[\]: no values"),
    "an axis that set has too": ({"set": {"rl.a": 1}, "grid": {"rl.a": [1, 2]}}, "arms.rl.grid.rl.a: set has rl.a already"),
    "an axis in two operators": ({"grid": {"rl.a": [1]}, "zip": {"rl.a": [1]}}, "arms.rl.zip.rl.a: grid has rl.a already"),
    "a value that stands twice": ({"grid": {"rl.a": [1, 1]}}, r"arms.rl: rl\[a=1\] is made twice"),
    "one at a time without another value": ({"one_at_a_time": {"rl.steps": [40]}}, "one_at_a_time: every value is the arm's own"),
    "an exclude that excludes nothing": (
        {"grid": {"rl.a": [1, 2]}, "exclude": [{"rl.a": 3}]},
        "exclude.0: leaves out nothing: no combination has rl.a = 3",
    ),
    "an exclude of nothing": ({"grid": {"rl.a": [1, 2]}, "exclude": [{}]}, "exclude.0: leaves out nothing"),
    "an exclude that excludes all": ({"grid": {"rl.a": [1]}, "exclude": [{"rl.a": 1}]}, "leaves no combination"),
    "an exclude of a key that is no axis": (
        {"grid": {"rl.alpha": [1, 2]}, "exclude": [{"rl.alhpa": 1}]},
        "exclude.0.rl.alhpa: not an axis of this arm; did you mean 'rl.alpha'",
    ),
    "a nested axis whose parent never takes the value": (
        {"grid": {"rl.a": [1, 2]}, "nested": {"rl.b": {"under": {"rl.a": [3]}, "values": [1]}}},
        "nested.rl.b.under: never active: no combination has rl.a = 3",
    ),
    "a nested axis without a parent": ({"nested": {"rl.b": {"under": {}, "values": [1]}}}, "nested.rl.b.under: empty"),
    "a control that is not there": ({"control": "rll"}, "arms.rl.control = 'rll': no such arm; did you mean 'rl'"),
    "a control that is the arm itself": ({"control": "rl"}, "arms.rl.control = 'rl': an arm cannot be its own control"),
    "a control that has axes": ({"control": "rl", "grid": {"rl.a": [1]}}, r"that arm has axes; .* such as 'rl\[a=1\]'"),
    "more combinations than anyone means": ({"grid": {f"rl.a{i}": list(range(20)) for i in range(9)}}, "512000000000 comb"),
    "a name too long for a folder": ({"grid": {"rl.reward": [{"function": "x" * 200}]}}, "declare arms of their own, with set"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused_is(case: str) -> None:
    arm, words = REFUSED[case]
    with pytest.raises(UserError, match=words) as caught:
        expanded(**arm)
    assert str(caught.value).startswith("study.yaml: arms.rl")
    assert "\n" not in str(caught.value)


def test_a_name_with_a_bracket_is_refused() -> None:
    with pytest.raises(UserError, match="without '\\['"):
        expand_axes({"rl[a=1]": Arm(path=["base"])}, lookup, KeyPlace("study.yaml"))


# -- through the planner -------------------------------------------------------------------------------------------------


@pytest.fixture
def configs(tmp_path: Path) -> Path:
    return copy_configs(tmp_path)


def study(configs: Path, *arms: str, claim: str = "base", more: str = "") -> Path:
    """A small study with these arms beside `base`, each a line of YAML."""
    lines = "\n  ".join(["base: {path: [base]}", *arms])
    (configs / "study/mine.yaml").write_text(
        f"""defaults:
  - /task@task: op_dag
  - /method@stages.rl.method: grpo
  - _self_
question: What is an arm?
data:
  corpus: {{band: id, split: train}}
  edge: {{band: edge, split: rl}}
  hard: {{band: hard, split: rl}}
  test: {{bands: [id], split: test}}
stages:
  base: {{kind: pretrain, data: {{corpus: 1.0}}}}
  rl: {{kind: rl, data: {{edge: 1.0}}}}
  eval: {{kind: evaluate, data: test}}
arms:
  {lines}
evaluate: [eval]
seeds: {{values: [0], vary: [rl]}}
claims:
  - {{says: so, test: {{value: strict_pass@1, band: id, arm: '{claim}', within: [0.0, 0.9]}}}}
{more}
"""
    )
    return configs


def digests(configs: Path) -> set[str]:
    plan = plan_study(configs, "mine", "smoke")
    return set(plan.stages) - {plan.report}


def test_axes_reach_the_stages_and_claims_may_name_their_arms(configs: Path) -> None:
    name = "rl[loss_type=cispo,epsilon_high=5.0]"
    axes = "grid: {rl.method.loss.loss_type: [dapo, cispo]}"
    nested = "nested: {rl.method.loss.epsilon_high: {under: {rl.method.loss.loss_type: [cispo]}, values: [4.0, 5.0]}}"
    study(configs, f"rl: {{path: [base, rl], control: base, {axes}, {nested}, set: {{rl.minibatches: 2}}}}", claim=name)
    plan = plan_study(configs, "mine", "smoke")
    rows = {row.arm: row for row in plan.stages[plan.report].spec.arms}
    losses = {arm: plan.stages[row.path[-1].digest].spec.method.loss for arm, row in rows.items() if arm != "base"}
    assert {arm: (loss.loss_type, loss.epsilon_high) for arm, loss in losses.items()} == {
        "rl[loss_type=dapo]": ("dapo", None),
        "rl[loss_type=cispo,epsilon_high=4.0]": ("cispo", 4.0),
        name: ("cispo", 5.0),
    }


def test_a_key_of_set_within_the_values_of_an_axis_holds_for_each_of_them(configs: Path) -> None:
    axes = "grid: {rl.method.loss: [{name: clipped, beta: 0.0}, {name: clipped, beta: 0.1}]}"
    study(configs, f"rl: {{path: [base, rl], control: base, {axes}, set: {{rl.method.loss.epsilon: 0.3}}}}")
    losses = [stage.spec.method.loss for stage in plan_study(configs, "mine", "smoke").stages.values() if stage.kind == "rl"]
    assert [(loss.beta, loss.epsilon) for loss in losses] == [(0.0, 0.3), (0.1, 0.3)]


def test_the_centre_of_one_at_a_time_is_known_from_the_scale_and_the_schema(configs: Path) -> None:
    axes = "one_at_a_time: {rl.steps: [4, 8], rl.method.loss.beta: [0.0, 0.1], rl.data: [{edge: 1.0}, {hard: 1.0}]}"
    study(configs, f"rl: {{path: [base, rl], control: base, {axes}}}")
    plan = plan_study(configs, "mine", "smoke")
    found = {row.arm: row.control for row in plan.stages[plan.report].spec.arms}
    assert found == {"base": None, "rl": "base", "rl[steps=8]": "rl", "rl[beta=0.1]": "rl", "rl[data=hard:1.0]": "rl"}


@examples(5)
@given(order=st.permutations(["a", "b", "c"]))
def test_the_order_of_arms_changes_no_digest(order: list[str], tmp_path_factory: pytest.TempPathFactory) -> None:
    configs = copy_configs(tmp_path_factory.mktemp("order"))
    lines = {
        "a": "a: {path: [base, rl], grid: {rl.steps: [5, 6]}}",
        "b": "b: {path: [base, rl], control: a, grid: {rl.steps: [5, 6]}, set: {rl.data: {hard: 1.0}}}",
        "c": "c: {path: [base, rl], one_at_a_time: {rl.temperature: [0.5, 0.7]}}",
    }
    assert digests(study(configs, *(lines[name] for name in order))) == digests(study(configs, *lines.values()))


BAD: dict[str, tuple[str, str, str]] = {
    "a key that the stage does not know": (
        "rl: {path: [base, rl], grid: {rl.stesp: [1, 2]}}",
        "base",
        "mine.yaml:17: arms.rl.grid.rl.stesp: unknown key 'stesp'; did you mean 'steps'",
    ),
    "a value of the wrong type": ("rl: {path: [base, rl], grid: {rl.steps: [1, many]}}", "base", "'many'"),
    "a corpus that is none": (
        "rl: {path: [base, rl], set: {base.corpus: 3}, one_at_a_time: {rl.steps: [1]}}",
        "base",
        "mine.yaml:17: arms.rl.set.base.corpus = 3: should be keys and values",
    ),
    "a stage that is not there": ("rl: {path: [base, rl], zip: {lr.steps: [1]}}", "base", "lr.steps: must be stage.key"),
    "a stage that the arm does not have": (
        "rl: {path: [base], set: {rl.steps: 3}}",
        "base",
        "of a stage of this arm: task, base",
    ),
    "an arm that stands there twice": ("twin: {path: [base]}", "base", "twin is the same as base, stage for stage"),
    "values that mean the same": ("rl: {path: [base, rl], grid: {rl.temperature: [1, 1.0]}}", "base", "is the same as"),
    "a claim about an arm that has axes": (
        "rl: {path: [base, rl], grid: {rl.steps: [1]}}",
        "rl",
        "no such arm; known: base, rl[steps=1]",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_the_planner_refuses(case: str, configs: Path) -> None:
    arm, claim, words = BAD[case]
    study(configs, arm, claim=claim)
    with pytest.raises(UserError) as caught:
        plan_study(configs, "mine", "smoke")
    assert words in str(caught.value)
    assert "mine.yaml" in str(caught.value)


def test_a_table_may_name_combinations_and_no_other_arms(configs: Path) -> None:
    rl, table = (
        "rl: {path: [base, rl], grid: {rl.steps: [5, 6]}}",
        "tables: {main: {columns: [id], cells: [strict_pass@1], arms: ['%s']}}",
    )
    study(configs, rl, more=table % "rl[steps=5]")
    plan_study(configs, "mine", "smoke")
    study(configs, rl, more=table % "rl[steps=7]")
    with pytest.raises(UserError, match=r"tables.main.arms = 'rl\[steps=7\]': no such arm; did you mean 'rl\[steps="):
        plan_study(configs, "mine", "smoke")
