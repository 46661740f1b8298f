"""A budget split between mid-training and RL: the paper's table of steps, what leaves the path, axes, and what is refused."""

from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from conftest import copy_configs
from hypothesis import given, strategies as st

from interplay.api.frames import read
from interplay.core.digest import canonical
from interplay.core.model import UserError
from interplay.kinds.formulas import rl_step_tokens
from interplay.kinds.stages import paper_tokens
from interplay.report.spec import budget_spread
from interplay.rl.spec import RLSpec
from interplay.study.arms import budget_shares
from interplay.study.expand import plan_study
from interplay.study.plan import Plan
from interplay.study.spec import BudgetSplit
from interplay.train.spec import TrainSpec

STUDY = """
defaults:
  - /task@task: op_dag
  - /method@stages.rl.method: grpo
  - _self_
question: Where does a token help more?
knobs: {budget: 100000}
data:
  corpus: {band: id, split: train}
  edge: {band: edge, split: rl}
  test: {bands: [id], split: test}
stages:
  base: {kind: pretrain, data: {corpus: 1.0}}
  mid: {kind: midtrain, data: {corpus: 1.0}}
  rl: {kind: rl, data: {edge: 1.0}}
  eval: {kind: evaluate, data: test}
arms:
  base: {path: [base]}
  half: {path: [base, mid, rl], control: base, split: {tokens: 100000, rl_share: 0.5}}
evaluate: [eval]
seeds: {values: [0], vary: [mid, rl]}
"""
HALF = "  half: {path: [base, mid, rl], control: base, split: {tokens: 100000, rl_share: 0.5}}\n"


@pytest.fixture
def configs(tmp_path: Path) -> Path:
    return copy_configs(tmp_path)


def plan(configs: Path, arms: str = HALF, more: str = "", scale: str = "smoke", **replaced: str) -> Plan:
    text = STUDY.replace(HALF, arms) + more
    for old, new in replaced.items():
        text = text.replace(f"{{kind: {old}, ", f"{{kind: {old}, {new}, ")
    (configs / "study/mine.yaml").write_text(text)
    return plan_study(configs, "mine", scale)


def lengths(made: Plan) -> dict[str, dict[str, int]]:
    """Arm -> stage -> tokens or steps, the base apart."""
    rows = made.stages[made.report].spec.arms  # type: ignore[attr-defined]
    found: dict[str, dict[str, int]] = {}
    for row in rows:
        specs = {part.name: made.stages[part.digest].spec for part in row.path[1:]}
        found[row.arm] = {
            name: one.steps if isinstance(one, RLSpec) else one.tokens
            for name, one in specs.items()
            if isinstance(one, RLSpec | TrainSpec)
        }
    return found


# -- the published table --------------------------------------------------------------------------------------------------

BATCH = 524_288
TABLE_3 = {
    2000 * BATCH: [(2000, 0), (1600, 10), (1000, 25), (400, 40), (0, 50)],
    4000 * BATCH: [(4000, 0), (3200, 20), (2000, 50), (800, 80), (0, 100)],
    8000 * BATCH: [(8000, 0), (6400, 40), (4000, 100), (1600, 160), (0, 200)],
    16000 * BATCH: [(16000, 0), (12800, 80), (8000, 200), (3200, 320), (0, 400)],
    24000 * BATCH: [(24000, 0), (19200, 120), (12000, 300), (4800, 480), (0, 600)],
    32000 * BATCH: [(32000, 0), (25600, 160), (16000, 400), (6400, 640), (0, 800)],
    20_000_000_000: [(38147, 0), (30517, 191), (19073, 477), (7629, 763), (0, 954)],
}
"""arXiv:2512.07783, Table 3: (mid-training steps, RL steps) at rl_share 0, 0.2, 0.5, 0.8, 1; 1,024 prompts with r = 6, L = 2,048."""


def test_a_knob_that_no_key_takes_up_is_named_and_the_plan_is_made(configs: Path, caplog: pytest.LogCaptureFixture) -> None:
    plan(configs)
    assert [one.getMessage() for one in caplog.records] == [
        "configs/study/mine.yaml: knobs.budget: no key takes it up; write ${knobs.budget} where it acts, or take it away"
    ]
    caplog.clear()
    plan(configs, HALF.replace("100000", "'${knobs.budget}'"))
    assert not caplog.records


def test_the_steps_of_the_papers_table_3_come_out_within_rounding(configs: Path) -> None:
    budgets, ratios = list(TABLE_3), [0.0, 0.2, 0.5, 0.8, 1.0]
    arm = f"  half: {{path: [base, mid, rl], control: base, split: {{}}, grid: {{split.tokens: {budgets}, split.rl_share: {ratios}}}}}\n"
    six = "max_completion_length: 2048, method: {paper: p, allocation: {num_generations: 6}}"
    made = lengths(plan(configs, arm, scale="paper", rl=six))
    for tokens, row in TABLE_3.items():
        for share, (mid, rl) in zip(ratios, row, strict=True):
            found = made[f"half[tokens={tokens},rl_share={share}]"]
            assert set(found) == {name for name, steps in (("mid", mid), ("rl", rl)) if steps}
            assert abs(found.get("mid", 0) - mid * BATCH) <= BATCH, (tokens, share)
            assert found.get("rl", 0) == rl, (tokens, share)
            if tokens != 20_000_000_000:  # there the paper cuts where we round
                assert found.get("mid", 0) == mid * BATCH


def test_a_step_is_charged_five_thirds_of_its_rollouts_at_the_cap() -> None:
    spec = {
        "steps": 50,
        "prompts_per_step": 1024,
        "method": {"allocation": {"num_generations": 6}},
        "max_completion_length": 2048,
    }
    assert rl_step_tokens(spec) == 20_971_520
    assert paper_tokens("rl", spec) == 50 * 20_971_520 == 1_048_576_000
    assert rl_step_tokens({**spec, "max_prompt_length": 1024, "max_completion_length": 1024}) == 20_971_520
    assert rl_step_tokens({**spec, "max_prompt_length": None}) == 20_971_520
    assert rl_step_tokens({**spec, "prompts_per_step": 1, "max_completion_length": 1}) == Fraction(10)


@given(st.integers(1, 10**12), st.decimals(0, 1, places=4).map(float))
def test_the_two_shares_are_the_whole_budget(tokens: int, share: float) -> None:
    mid, rl = budget_shares(BudgetSplit(tokens=tokens, rl_share=share))
    assert mid + rl == tokens
    assert min(mid, rl) >= 0
    assert (rl == 0) == (share == 0)
    assert (mid == 0) == (share == 1)


# -- in a study --------------------------------------------------------------------------------------------------------------

STEP = 5120
"""Tokens that smoke charges for a step: 5/3 of 8 prompts, 8 completions, 48 tokens."""


def test_a_share_is_whole_batches_and_the_nearest_number_of_steps(configs: Path) -> None:
    made = plan(configs)
    assert lengths(made)["half"] == {"mid": 49 * 1024, "rl": 10}
    rl = next(stage for stage in made.stages.values() if stage.kind == "rl")
    assert paper_tokens("rl", canonical(rl.spec)) == 10 * STEP


def test_a_knob_gives_the_budget_and_the_arm_its_own_method_and_batches(configs: Path) -> None:
    arm = (
        "  half: {path: [base, mid, rl], control: base, split: {tokens: '${knobs.budget}', rl_share: 0.5}, "
        "set: {rl.method.allocation.num_generations: 4, mid.batch_tokens: 2048}}\n"
    )
    assert lengths(plan(configs, arm))["half"] == {"mid": 24 * 2048, "rl": 20}


def test_one_arm_makes_the_grid_and_a_stage_without_a_share_leaves_the_path(configs: Path) -> None:
    arm = "  g: {path: [base, mid, rl], control: base, split: {tokens: 102400}, grid: {split.rl_share: [0, 0.5, 1]}}\n"
    match = "match: {budget: tokens, accounting: paper, among: ['g[rl_share=0]', 'g[rl_share=0.5]', 'g[rl_share=1]'], tolerance: 0.001}\n"
    assert lengths(plan(configs, arm, match)) == {
        "base": {},
        "g[rl_share=0]": {"mid": 102400},
        "g[rl_share=0.5]": {"mid": 51200, "rl": 10},
        "g[rl_share=1]": {"rl": 20},
    }


def test_a_budget_axis_walks_in_step_with_others(configs: Path) -> None:
    arm = "  z: {path: [base, mid, rl], control: base, split: {}, zip: {split.tokens: [51200, 102400], split.rl_share: [0.5, 0.8]}}\n"
    assert lengths(plan(configs, arm)) == {
        "base": {},
        "z[tokens=51200,rl_share=0.5]": {"mid": 25600, "rl": 5},
        "z[tokens=102400,rl_share=0.8]": {"mid": 20480, "rl": 16},
    }


def test_one_at_a_time_knows_the_splits_own_share(configs: Path) -> None:
    arm = (
        "  o: {path: [base, mid, rl], control: base, split: {tokens: 102400, rl_share: 0.5}, "
        "one_at_a_time: {split.rl_share: [0.2, 0.5]}}\n"
    )
    assert list(lengths(plan(configs, arm))) == ["base", "o", "o[rl_share=0.2]"]


@given(share=st.sampled_from([0.1, 0.25, 0.4, 0.6, 0.75, 0.9]), tokens=st.integers(200_000, 400_000))
def test_the_charges_of_a_split_lie_within_half_a_unit_of_each_share(share: float, tokens: int) -> None:
    mid, rl = budget_shares(BudgetSplit(tokens=tokens, rl_share=share))
    spent = [round(mid / 1024) * 1024, round(rl / STEP) * STEP]
    assert abs(sum(spent) - tokens) <= (1024 + STEP) / 2
    assert budget_spread({"split": sum(spent), "whole": tokens}) < 0.02


def test_a_worked_out_length_that_is_the_controls_own_is_no_fault(configs: Path) -> None:
    """The control has 20,000 tokens of mid-training from the scale's own keys, as this split has them, too."""
    arms = (
        "  full: {path: [base, mid], control: base, set: {mid.tokens: 51200}}\n"
        "  half: {path: [base, mid, rl], control: full, split: {tokens: 102400, rl_share: 0.5}}\n"
    )
    assert lengths(plan(configs, arms))["half"]["mid"] == 51200


def test_frames_have_the_share_and_what_it_came_to_as_columns(configs: Path, tmp_path: Path) -> None:
    arm = "  g: {path: [base, mid, rl], control: base, split: {tokens: 102400}, grid: {split.rl_share: [0.5, 0.8]}}\n"
    plan(configs, arm)
    rows = read("mine", "smoke", configs, tmp_path / "results").metrics.query("stage == 'eval' and group == 'g'")
    assert rows[["split.rl_share", "mid.tokens", "rl.steps"]].to_numpy().tolist() == [[0.5, 51200, 10], [0.8, 20480, 16]]


REFUSED: dict[str, tuple[str, str]] = {
    "a share under one batch": (
        "split: {tokens: 10240, rl_share: 0.95}", "split.tokens = 10240: its share of 10,240 tokens at rl_share 0.95, 512, is under one batch of mid, 1,024",
    ),
    "a share under one step": ("split: {tokens: 10240, rl_share: 0.2}", "is under one step of rl, 5,120"),
    "no budget": ("split: {rl_share: 0.2}", "split.tokens: missing; give it here, or as an axis, split.tokens"),
    "no share": ("split: {tokens: 102400}", "split.rl_share: missing"),
    "a share above one": ("split: {tokens: 102400, rl_share: 1.2}", "split.rl_share = 1.2: should be less than or equal to 1"),
    "an axis above one": ("split: {tokens: 102400}, grid: {split.rl_share: [0.5, 2]}", "rl_share = 2: should be less than or equal to 1"),
    "tokens of the stage in set": ("split: {tokens: 102400, rl_share: 0.5}, set: {mid.tokens: 2048}", "mid.tokens follows from split"),
    "steps of the stage as an axis": ("split: {tokens: 102400, rl_share: 0.5}, grid: {rl.steps: [2, 4]}", "rl.steps follows from split"),
    "a stage that is not on the path": ("split: {tokens: 102400, rl_share: 0.5, mid: base2}", "split.mid = 'base2': not on the path of this arm"),
    "a stage of another kind": ("split: {tokens: 102400, rl_share: 0.5, rl: mid}", "split.rl = 'mid': is a midtrain stage; name one of kind rl"),
    "the first stage": ("split: {tokens: 102400, rl_share: 0.5, mid: base}", "split.mid = 'base': is a pretrain stage"),
    "an axis over another key": ("split: {tokens: 102400, rl_share: 0.5}, grid: {split.mid: [mid]}", "must be split.tokens or split.rl_share"),
    "an axis without a split": ("grid: {split.rl_share: [0.5]}", "this arm splits no budget"),
    "a share in set": ("split: {tokens: 102400}, set: {split.rl_share: 0.5}", "write it in the arm's split itself"),
    "an unknown key": ("split: {tokens: 102400, share: 0.5}", "unknown key 'share'; did you mean 'rl_share'?"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_refused_in_one_line_with_its_place_is(case: str, configs: Path) -> None:
    keys, words = REFUSED[case]
    with pytest.raises(UserError) as caught:
        plan(configs, f"  half: {{path: [base, mid, rl], control: base, {keys}}}\n")
    said = str(caught.value)
    assert words in said
    assert "study/mine.yaml:19: arms" in said, "file and line of the arm"
    assert "\n" not in said


def test_a_checkpoint_of_the_mid_stage_cannot_be_given_a_length(configs: Path) -> None:
    with pytest.raises(UserError, match=r"split\.mid = 'mid': not on the path"):
        plan(
            configs,
            "  half: {path: [base, mid@10, rl], control: base, split: {tokens: 102400, rl_share: 0.5}}\n",
            midtrain="checkpoints: [10]",
        )


def test_budgets_that_do_not_match_are_still_refused(configs: Path) -> None:
    arms: Any = (
        "  one: {path: [base, mid, rl], control: base, split: {tokens: 102400, rl_share: 0.8}}\n"
        "  two: {path: [base, mid, rl], control: base, split: {tokens: 204800, rl_share: 0.2}}\n"
    )
    with pytest.raises(UserError, match=r"tokens differ by 50\.0%: one 102,400, two 204,800"):
        plan(configs, arms, "match: {budget: tokens, accounting: paper, among: [one, two]}\n")


def test_a_stage_may_not_be_called_split(configs: Path) -> None:
    (configs / "study/mine.yaml").write_text(STUDY.replace("  mid: {", "  split: {"))
    with pytest.raises(UserError, match=r"stages\.split: choose another name"):
        plan_study(configs, "mine", "smoke")
