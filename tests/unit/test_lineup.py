"""Who is compared in a contrast: what the planner finds, and the unfair fights that it refuses."""

import re
from pathlib import Path

import pytest
from test_arms import configs, study

from interplay.core.model import UserError
from interplay.report.spec import Lineup
from interplay.study.expand import plan_study

__all__ = ["configs"]

RATES = "grid: {rl.optimizer.learning_rate: [0.001, 0.002]}"
ARMS = (
    f"grpo: {{path: [base, rl], {RATES}}}",
    f"hard: {{path: [base, rl], set: {{rl.data: {{hard: 1.0}}}}, {RATES}}}",
    "again: {path: [base, rl], set: {rl.seed: 100, rl.optimizer.learning_rate: 0.001}}",
)
TUNED = "against: grpo, noise: again, among: [hard], tune: {axis: rl.optimizer.learning_rate, band: id}"
PLAIN = "against: 'grpo[learning_rate=0.001]', noise: [again]"


def edit(configs: Path, old: str, new: str, *arms: str, more: str = "") -> None:
    """The small study with these arms and another word in it."""
    study(configs, *arms, more=more)
    path = configs / "study/mine.yaml"
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new))


def fight(configs: Path, contrast: str, *arms: str, columns: str = "edge") -> Lineup:
    """The lineup of a table with this contrast over these arms."""
    table = f"fight: {{columns: [{columns}], cells: [strict_pass@1], contrast: {{{contrast}}}}}"
    edit(configs, "test: {bands: [id]", "test: {bands: [id, edge]", *(arms or ARMS), more=f"tables: {{{table}}}")
    return plan_study(configs, "mine", "smoke").report_spec().lineups["fight"]


def test_combinations_that_differ_in_the_tuned_axis_alone_are_one_contender(configs: Path) -> None:
    found = fight(configs, TUNED)
    assert found.against == "grpo"
    assert {one.name: [(item.arm, item.value) for item in one.tries] for one in found.contenders} == {
        "grpo": [("grpo[learning_rate=0.001]", "0.001"), ("grpo[learning_rate=0.002]", "0.002")],
        "hard": [("hard[learning_rate=0.001]", "0.001"), ("hard[learning_rate=0.002]", "0.002")],
    }
    assert found.twins == {"again": "grpo[learning_rate=0.001]"}


def test_other_axes_make_contenders_of_their_own(configs: Path) -> None:
    arms = ("grpo: {path: [base, rl], grid: {rl.optimizer.learning_rate: [0.001, 0.002], rl.temperature: [0.5, 1.0]}}", ARMS[2])
    found = fight(configs, TUNED.replace("against: grpo", "against: 'grpo[temperature=1.0]'").replace("[hard]", "[grpo]"), *arms)
    assert [one.name for one in found.contenders] == ["grpo[temperature=0.5]", "grpo[temperature=1.0]"]


def test_without_tuning_every_combination_stands_for_itself(configs: Path) -> None:
    found = fight(configs, PLAIN)
    assert len(found.contenders) == 5
    assert {len(one.tries) for one in found.contenders} == {1}


def test_an_identical_run_has_other_seeds_and_shares_no_model_with_its_twin(configs: Path) -> None:
    study(configs, *ARMS)
    spec = plan_study(configs, "mine", "smoke").report_spec()
    ends = {row.arm: row.path for row in spec.arms}
    assert ends["again"][0] == ends["grpo[learning_rate=0.001]"][0], "the base is shared"
    assert ends["again"][1].digest != ends["grpo[learning_rate=0.001]"][1].digest


def test_the_seed_of_a_stage_is_added_to_each_repetition(configs: Path) -> None:
    edit(configs, "values: [0]", "values: [0, 1, 2]", "again: {path: [base, rl], set: {rl.seed: 100}}")
    plan = plan_study(configs, "mine", "smoke")
    rows = [row for row in plan.report_spec().arms if row.arm == "again"]
    assert [plan.stages[row.path[1].digest].spec.seed for row in rows] == [100, 101, 102]  # type: ignore[attr-defined]
    assert {plan.stages[row.path[0].digest].spec.seed for row in rows} == {0}  # type: ignore[attr-defined]


REFUSED = {
    "tuned by what is judged": (TUNED.replace("band: id", "band: edge"), (), "tune.band = 'edge' is a column of this table"),
    "tuned by an unknown band": (TUNED.replace("band: id", "band: idd"), (), "no such band of the evaluations; did you mean 'id'"),
    "unequal numbers of tries": (
        TUNED,
        (ARMS[0], ARMS[1].replace("[0.001, 0.002]", "[0.001, 0.002, 0.003]"), ARMS[2]),
        "unequal numbers of tries: grpo has 2, hard has 3; give each arm as many values",
    ),
    "an arm without the axis": (
        TUNED,
        (ARMS[0], "hard: {path: [base, rl], set: {rl.data: {hard: 1.0}}}", ARMS[2]),
        "grpo has 2, hard has 1",
    ),
    "an axis that nobody has": (
        PLAIN.replace("'grpo[learning_rate=0.001]'", "grpo") + ", tune: {axis: rl.temperature, band: id}",
        ("grpo: {path: [base, rl]}", "hard: {path: [base, rl], set: {rl.data: {hard: 1.0}}}", "again: {path: [base, rl], set: {rl.seed: 9}}"),
        "no arm of this table has several values of it",
    ),
    "a name that stands for several": (PLAIN.replace("'grpo[learning_rate=0.001]'", "grpo"), (), "name one of them, or tune the axis"),
    "noise that repeats nothing": (
        TUNED,
        (ARMS[0], ARMS[1], ARMS[2].replace("0.001", "0.005")),
        "repeats no arm of this table; make it one of them but for a stage's seed",
    ),
    "noise that does not repeat whom the others stand against": (
        TUNED,
        (ARMS[0], ARMS[1], ARMS[2].replace("rl.seed: 100", "rl.seed: 100, rl.data: {hard: 1.0}")),
        "no arm of it repeats grpo",
    ),
    "an arm that is not there": (TUNED.replace("among: [hard]", "among: [hrad]"), (), "no such arm; did you mean 'hard'"),
    "nobody to compare with": (TUNED.replace("among: [hard]", "among: [grpo]"), (), "nothing is compared with grpo"),
    "noise left out": (TUNED.replace("noise: again, ", ""), (), "contrast: noise: name an arm that repeats another"),
    "a seed that is no number": (TUNED, (*ARMS[:2], ARMS[2].replace("100", "x")), "rl.seed = 'x': should be a whole number"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_an_unfair_fight_is_refused(case: str, configs: Path) -> None:
    contrast, arms, says = REFUSED[case]
    with pytest.raises(UserError) as caught:
        fight(configs, contrast, *arms)
    assert says in str(caught.value)
    assert str(caught.value).startswith("configs/study/mine.yaml:")


def test_a_single_op_that_lies_in_the_tuning_band_cannot_be_judged(configs: Path) -> None:
    with pytest.raises(UserError, match="holds prompts of column op"):
        fight(configs, TUNED, columns="op")


def test_a_noise_arm_that_coincides_with_another_seed_of_its_twin_is_refused(configs: Path) -> None:
    arms = ("grpo: {path: [base, rl]}", "again: {path: [base, rl], set: {rl.seed: 1}}", ARMS[1].replace(RATES, "control: grpo"))
    table = "fight: {columns: [id], cells: [strict_pass@1], contrast: {against: grpo, noise: again}}"
    edit(configs, "values: [0]", "values: [0, 1, 2]", *arms, more=f"tables: {{{table}}}")
    with pytest.raises(UserError, match="again': shares a model with grpo; set a seed of its last stage beyond all seeds"):
        plan_study(configs, "mine", "smoke")


# --- tuned on the bases of a pilot ---

PILOT = TUNED.replace("band: id", "band: id, bases: [20, 21]")


def piloted(configs: Path, contrast: str, seeds: str = "vary: [base, rl]") -> Path:
    table = f"fight: {{columns: [edge], cells: [strict_pass@1], contrast: {{{contrast}}}}}"
    edit(configs, "test: {bands: [id]", "test: {bands: [id, edge]", *ARMS, more=f"tables: {{{table}}}")
    path = configs / "study/mine.yaml"
    path.write_text(path.read_text().replace("vary: [rl]", seeds))
    return path


def test_a_pilot_has_bases_of_its_own_and_every_try_of_each_contender(configs: Path) -> None:
    piloted(configs, PILOT)
    plan = plan_study(configs, "mine", "smoke")
    spec = plan.report_spec()
    tries = [f"{arm}[learning_rate={rate}]" for arm in ("grpo", "hard") for rate in ("0.001", "0.002")]
    assert sorted((row.arm, row.seed) for row in spec.tuning) == sorted((arm, seed) for arm in tries for seed in (20, 21))
    assert {row.seed for row in spec.arms} == {0}, "they are judged nowhere"
    bases = [{row.path[0].digest for row in rows} for rows in (spec.arms, spec.tuning)]
    assert (len(bases[1]), bases[0] & bases[1]) == (2, set())
    wanted = {digest for row in spec.tuning for digest in row.evaluations.values()}
    assert wanted <= set(plan.stages[plan.report].deps.values())


@pytest.mark.parametrize(
    ("bases", "seeds", "said"),
    [
        ("[20, 0]", "vary: [base, rl]", "tune.bases = [20, 0]: the study judges by seed 0, too"),
        ("[20, 21]", "vary: [rl]", "base is made once, so that the pilot has the study's base; name it in seeds.vary"),
    ],
)
def test_a_pilot_that_shares_a_base_with_the_study_is_refused(bases: str, seeds: str, said: str, configs: Path) -> None:
    piloted(configs, PILOT.replace("[20, 21]", bases), seeds)
    with pytest.raises(UserError, match=re.escape(said)):
        plan_study(configs, "mine", "smoke")
