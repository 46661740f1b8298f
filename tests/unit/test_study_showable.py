"""What no stage of a study will ever tell is refused when it is planned, in a line that blames what is wrong."""

from pathlib import Path

import pytest
from conftest import copy_configs

from interplay.core.model import UserError
from interplay.kinds.table import UPDATE
from interplay.rl.losses import MEMBERS
from interplay.study.expand import plan_study

LAST = "test: {difference: strict_pass@1, band: hard, arm: rl_hard,"


@pytest.fixture
def configs(tmp_path: Path) -> Path:
    return copy_configs(tmp_path)


def write(configs: Path, *edits: tuple[str, str]) -> None:
    path = configs / "study/quickstart.yaml"
    text = path.read_text()
    for old, new in edits:
        assert old in text, old
        text = text.replace(old, new)
    path.write_text(text)


def refusal(configs: Path, *edits: tuple[str, str]) -> str:
    write(configs, *edits)
    with pytest.raises(UserError) as refused:
        plan_study(configs, "quickstart", "smoke")
    assert "\n" not in str(refused.value)
    return str(refused.value)


def test_a_curve_that_no_last_stage_logs_is_refused_with_the_nearest_that_one_does(configs: Path) -> None:
    said = refusal(configs, ("y: reward}", "y: rewards}"))
    assert "figures.reward.y = 'rewards': no arm's last stage (pretrain, rl) logs it; did you mean 'reward'?" in said


def test_a_divergence_is_logged_where_there_is_a_reference(configs: Path) -> None:
    assert "method.loss.beta is not 0" in refusal(configs, ("y: reward}", "y: kl}"))
    write(configs, ("set: {rl.data", "set: {rl.method.loss.beta: 0.04, rl.data"))
    assert plan_study(configs, "quickstart", "smoke").report


@pytest.mark.parametrize("name", ["drawn/edge", "reward/outcome", "sampler/mu", "kl_old", "lr_factor", "eval_loss/id"])
def test_what_some_last_stage_may_log_is_planned(configs: Path, name: str) -> None:
    write(configs, ("y: reward}", f"y: {name}}}"))
    assert plan_study(configs, "quickstart", "smoke").report


def test_a_claim_about_an_op_that_no_test_set_has_is_refused(configs: Path) -> None:
    said = refusal(configs, (LAST, LAST.replace("hard, arm", "'op:9', arm")))
    assert "claims.2.test.band = 'op:9': no problem that rl_hard is tested on has 9 ops; they have 1, 2, 3" in said
    write(configs, ("op:9", "op:3"))
    assert plan_study(configs, "quickstart", "smoke").report


def test_bases_fail_by_a_stage_on_the_way_of_the_claims_arms(configs: Path) -> None:
    rule, first = "fails: {recorded: rl, value: reward_last, below: reward_first}\n    ", "test: {value: strict_pass@1, band: id"
    said = refusal(configs, (first, rule + first))
    assert "claims.0.fails.recorded = 'rl': no stage of base" in said
    write(configs, (rule + first, first), (LAST, rule + LAST))
    assert plan_study(configs, "quickstart", "smoke").report
    assert "claims.2.fails.recorded = 'rll': no such stage; did you mean 'rl'?" in refusal(
        configs, ("recorded: rl,", "recorded: rll,")
    )


def test_a_table_may_have_single_ops_as_columns_where_they_are_tested(configs: Path) -> None:
    columns = "main: {columns: [id, edge, beyond, hard]"
    plan_study(configs, "quickstart", "smoke")
    said = refusal(configs, (columns, columns.replace("hard", "'op:9'")))
    assert "tables.main.columns = 'op:9': no problem of its arms' tests has 9 ops; they have 1, 2, 3" in said
    write(configs, ("op:9", "op:3"))
    plan_study(configs, "quickstart", "smoke")


@pytest.mark.parametrize(
    ("axis", "said"),
    [
        ("rl.optimizer.learning_rte: [0.003]", "learning_rte"),
        ("rl.optimizer.learning_rate: [-3]", "learning_rate = -3"),
    ],
)
def test_an_axis_that_the_schema_does_not_know_is_blamed_and_not_the_claim_about_its_arm(
    configs: Path, axis: str, said: str
) -> None:
    claimed = "rl_hard[learning_rate=0.003]"
    found = refusal(
        configs, ("set: {rl.data: {hard: 1.0}}", f"grid: {{{axis}}}"), (LAST, LAST.replace("rl_hard", f"'{claimed}'"))
    )
    assert f"arms.rl_hard.grid.rl.optimizer.{said}" in found
    assert "no such arm" not in found


def test_what_losses_sum_is_among_what_rl_logs() -> None:
    assert {name for member in MEMBERS.values() for name in member.sums} <= set(UPDATE)
