"""`paper` scale is what arXiv:2512.07783 published: each study of configs/study/interplay goes through the planner, and every setting
that the paper or its released code states is compared with what came out. [P]: the paper, [C]: the released code where the paper is
silent. What cannot be matched is listed in UNMATCHED and, with the reason, in docs/published.md."""

import functools
from typing import Any, NamedTuple

import pytest
from conftest import ROOT

from interplay.core.digest import corpus_inputs
from interplay.core.model import Model
from interplay.data.spec import ProblemsSpec
from interplay.kinds.stages import paper_tokens, shape_size, vocabulary_size
from interplay.report.spec import ReportArm, ReportSpec
from interplay.study.expand import plan_study
from interplay.study.plan import Plan, Stage
from interplay.tasks.op_dag.spec import PUBLISHED, THEMES

STUDIES = [
    "extrapolation",
    "pretraining",
    "published/five_exposures",
    "published/all_shares",
    "published/six_budgets",
    "process_rewards",
    "before_rl",
]
OPS = tuple(range(2, 21))
ID, LOW, MIDDLE, TOP, EDGE, HARD = OPS[:9], (2, 3, 4), (5, 6, 7), (8, 9, 10), (11, 12, 13, 14), (15, 16, 17, 18, 19, 20)


@functools.cache
def planned(study: str) -> Plan:
    return plan_study(ROOT / "configs", f"interplay/{study}", "paper")


def of_kind(study: str, kind: str) -> list[Any]:
    return [stage.spec for stage in planned(study).stages.values() if stage.kind == kind]


def value(spec: Any, dotted: str) -> Any:
    for key in dotted.split("."):
        spec = getattr(spec, key) if isinstance(spec, Model) else spec[key]
    return spec


class Setting(NamedTuple):
    """One published value and where it goes in a spec."""

    kind: str
    key: str
    published: Any
    source: str


SETTINGS = [
    # model, Table 1 [P]
    Setting("pretrain", "model.architecture", "qwen2", "[P] Qwen2.5-style decoder"),
    Setting("pretrain", "model.num_hidden_layers", 12, "[P] Table 1"),
    Setting("pretrain", "model.hidden_size", 768, "[P] Table 1"),
    Setting("pretrain", "model.intermediate_size", 3072, "[P] Table 1"),
    Setting("pretrain", "model.num_attention_heads", 12, "[P] Table 1"),
    Setting("pretrain", "model.num_key_value_heads", 2, "[P] Table 1"),
    Setting("pretrain", "model.head_dim", 64, "[P] Table 1"),
    Setting("pretrain", "model.rms_norm_eps", 1e-6, "[C]"),
    Setting("pretrain", "model.rope_theta", 1e6, "[C]"),
    Setting("pretrain", "model.tie_word_embeddings", True, "[C]"),
    Setting("pretrain", "model.max_position_embeddings", 2048, "[P] context"),
    # surface and tokenizer
    Setting("problems", "task.name", "op_dag_prose", "[C] the released generator's sentences"),
    Setting("problems", "task.modes", {"forward": 0.5, "reverse": 0.5}, "[C] round-robin"),
    Setting("problems", "task.distractors", None, "[C] all that the places leave"),
    Setting("problems", "task.constants", "published", "[C] leaves 1..4, 12.5 % ones"),
    Setting("problems", "task.max_value", 1000, "[C]"),
    Setting("problems", "task.note", False, "[C] the training text has none"),
    Setting("tokenizer", "algorithm", "bpe", "[P] byte-level BPE"),
    Setting("tokenizer", "vocab_size", 2200, "[P]"),
    Setting("tokenizer", "reserve", True, "so that the model has 2,200 rows"),
    Setting("tokenizer", "digits", 3, "[C] digits in groups of one to three"),
    Setting("corpus", "by", "tokens", "[C] pre-training mixes by tokens"),
    Setting("corpus", "sequence_length", 2048, "[P]"),
    Setting("corpus", "packing", "causal", "[C] packed problems see each other"),
    Setting("corpus", "loss_on", "all", "[C] next-token loss on the whole text"),
    # pre-training, section 2 [P]
    Setting("pretrain", "tokens", 10_000_000_000, "[P]"),
    Setting("pretrain", "batch_tokens", 64 * 4 * 2048, "[P] 512K tokens"),
    Setting("pretrain", "optimizer.name", "adamw", "[P]"),
    Setting("pretrain", "optimizer.learning_rate", 2e-4, "[P]; 1e-4 in [C]: deviations, half_rate"),
    Setting("pretrain", "optimizer.weight_decay", 0.1, "[P]"),
    Setting("pretrain", "optimizer.max_grad_norm", 1.0, "[P]"),
    Setting("pretrain", "schedule.name", "cosine", "[P]"),
    Setting("pretrain", "schedule.warmup_ratio", 0.05, "[P]"),
    Setting("pretrain", "schedule.decay_ratio", 1.0, "[P]"),
    Setting("pretrain", "schedule.min_ratio", 3e-5 / 2e-4, "[P] down to 3e-5"),
    Setting("pretrain", "dtype", "bfloat16", "[P]"),
    Setting("pretrain", "position_jumps.probability", 0.0, "plain positions"),
    # mid-training, section 5 [P]
    Setting("midtrain", "batch_tokens", 64 * 4 * 2048, "[P] 512K tokens"),
    Setting("midtrain", "optimizer.name", "adamw", "[P]"),
    Setting("midtrain", "optimizer.learning_rate", 1e-4, "[P]"),
    Setting("midtrain", "optimizer.weight_decay", 0.1, "[P]"),
    Setting("midtrain", "optimizer.max_grad_norm", 1.0, "[P]"),
    Setting("midtrain", "schedule.name", "cosine", "[P]"),
    Setting("midtrain", "schedule.warmup_ratio", 0.15, "[P]"),
    Setting("midtrain", "schedule.min_ratio", 3e-5 / 1e-4, "[P] down to 3e-5"),
    Setting("midtrain", "dtype", "bfloat16", "[P]"),
    # RL, section 2 [P], verl's options [C]
    Setting("rl", "method.allocation.num_generations", 6, "[P]; 4 on [C]'s launcher: deviations, groups_of_4"),
    Setting("rl", "prompts_per_step", 1024, "[P]"),
    Setting("rl", "minibatches", 1024 // 256, "[P] 256 prompts an update"),
    Setting("rl", "method.loss.num_iterations", 1, "[C] one PPO epoch"),
    Setting("rl", "method.advantage.scale_rewards", "group", "[P] group z-score"),
    Setting("rl", "method.loss.loss_type", "bnpo", "[C] token-mean: over the tokens of an update"),
    Setting("rl", "method.loss.importance_sampling_level", "token", "[P]"),
    Setting("rl", "method.loss.epsilon", 0.2, "[P]"),
    Setting("rl", "method.loss.epsilon_high", None, "[C] 0.2 on both sides"),
    Setting("rl", "method.loss.delta", 3.0, "[C] dual clip"),
    Setting("rl", "method.loss.beta", 1e-3, "[P] KL loss, k3"),
    Setting("rl", "method.loss.entropy_coef", 0.0, "[C]"),
    Setting("rl", "method.edits", [], "[C] no filter"),
    Setting("rl", "temperature", 1.0, "[P]"),
    Setting("rl", "max_prompt_length", 1024, "[P]"),
    Setting("rl", "max_completion_length", 1024, "[P]"),
    Setting("rl", "optimizer.learning_rate", 1e-6, "[P]"),
    Setting("rl", "schedule.name", "constant", "[P]"),
    Setting("rl", "dtype", "bfloat16", "[C]"),
    # evaluation, section 2 [P]
    Setting("evaluate", "temperature", 0.7, "[P]"),
    Setting("evaluate", "top_p", 1.0, "[P]"),
    Setting("evaluate", "top_k", 0, "[P]"),
    Setting("evaluate", "max_completion_length", 1024, "[P]"),
    Setting("evaluate", "verify.operator", False, "[C] parents and value alone"),
    Setting("evaluate", "verify.extra_nodes", "free", "[P]"),
]


@pytest.mark.parametrize("setting", SETTINGS, ids=lambda one: f"{one.kind}.{one.key}")
def test_every_stage_of_every_study_has_the_published_value(setting: Setting) -> None:
    found = {study: [value(spec, setting.key) for spec in of_kind(study, setting.kind)] for study in STUDIES}
    assert any(found.values())
    for study, values in found.items():
        for one in values:
            assert (
                one == pytest.approx(setting.published) if isinstance(setting.published, float) else one == setting.published
            ), study


def test_the_model_has_103_million_parameters() -> None:
    plan = planned("extrapolation")
    base = next(stage for stage in plan.stages.values() if stage.kind == "pretrain")
    tokenizer = plan.stages[base.deps["tokenizer"]].as_json()["spec"]
    count = shape_size(base.as_json()["spec"]["model"], vocabulary_size(tokenizer)).parameters
    assert count == pytest.approx(103.2e6, rel=5e-4)
    assert count - 2200 * 768 == pytest.approx(101.5e6, rel=5e-4)  # without embeddings


def test_the_surface_has_the_published_themes_and_leaves() -> None:
    assert (PUBLISHED[1], PUBLISHED[2]) == (0.125, pytest.approx(0.292, abs=1e-3))
    assert {len(group) for theme in THEMES.values() for group in (*theme.places, *theme.types)} == {5}
    for study in STUDIES:
        for spec in of_kind(study, "problems"):
            shares = spec.task.themes
            assert (
                shares in ({"zoo": 1.0}, {"school": 1.0})
                if study == "published/all_shares"
                else shares == pytest.approx(dict.fromkeys(("zoo", "school", "film"), 1 / 3))
            )


# -- data recipes, Table 2 ------------------------------------------------------------------------------------------------

Recipe = dict[tuple[str, tuple[int, ...]], float]
"""(theme, or `all` for the three; ops) -> share."""


def recipe(study: str, arm: str, name: str) -> Recipe:
    """What a stage of an arm learns from: shares of tokens, of prompts for RL."""
    plan = planned(study)
    row = row_of(study, arm)
    stage = plan.stages[next(part.digest for part in row.path if part.name == name)]
    holders = [plan.stages[digest] for digest in corpus_inputs(stage.deps)] or [stage]
    each = [mixed(plan, holder) for holder in holders]
    assert all(one == each[0] for one in each)
    return each[0]


def mixed(plan: Plan, holder: Stage) -> Recipe:
    """The sets that a corpus, or an RL stage, draws from."""
    found: Recipe = {}
    for place, share in enumerate(holder.spec.mix):  # type: ignore[attr-defined]
        data = plan.stages[holder.deps[f"data.{place}"]].spec
        assert isinstance(data, ProblemsSpec)
        ((ops),) = data.bands.values()
        assert list(ops.values()) == pytest.approx([1 / len(ops)] * len(ops))
        themes = list(data.task.themes)  # type: ignore[union-attr]
        found[themes[0] if len(themes) == 1 else "all", tuple(ops)] = share
    return found


def row_of(study: str, arm: str) -> ReportArm:
    report = planned(study).stages[planned(study).report].spec
    assert isinstance(report, ReportSpec)
    return next(row for row in report.arms if row.arm == arm)


BASE: Recipe = {("all", LOW): 0.2, ("all", MIDDLE): 0.3, ("all", TOP): 0.5}
RECIPES: list[tuple[str, str, str, Recipe]] = [
    *((study, "base", "base", BASE) for study in STUDIES if study not in ("published/five_exposures", "published/all_shares")),
    ("extrapolation", "rl_id", "rl", {("all", (7, 8, 9, 10)): 1.0}),
    ("extrapolation", "rl_straddle", "rl", {("all", (9, 10, 11, 12)): 1.0}),
    ("extrapolation", "rl_edge", "rl", {("all", EDGE): 1.0}),
    ("extrapolation", "rl_hard", "rl", {("all", (17, 18, 19, 20)): 1.0}),
    ("published/six_budgets", "whole[rl_share=0.5]", "mid", {("all", ID): 0.2, ("all", EDGE): 0.8}),
    ("published/six_budgets", "whole[rl_share=0.5]", "rl", {("all", EDGE): 1.0}),
    *(("process_rewards", arm, "rl", {("all", EDGE): 1.0}) for arm in ("outcome", "strict", "blend_2", "blend_5")),
    *(
        (
            "published/five_exposures",
            arm,
            "base",
            {("all", LOW): (1 - top) / 2, ("all", MIDDLE): (1 - top) / 2, ("all", TOP): top},
        )
        for arm, top in (("trace", 0.001), ("little", 0.05), ("fifth", 0.2), ("third", 0.333), ("half", 0.5))
    ),
    ("published/five_exposures", "half_rl", "rl", {("all", EDGE): 1.0}),
    ("published/all_shares", "none", "base", {("zoo", OPS): 1.0}),
    ("published/all_shares", "few", "base", {("zoo", OPS): 0.999, ("school", (2,)): 0.001}),
    ("published/all_shares", "some", "base", {("zoo", OPS): 0.99, ("school", (2,)): 0.01}),
    ("published/all_shares", "many", "base", {("zoo", OPS): 0.9, ("school", (2,)): 0.1}),
    ("published/all_shares", "some", "rl", {("zoo", OPS): 0.5, ("school", OPS): 0.5}),
    ("published/all_shares", "shared_rl_a", "base", {("zoo", OPS): 0.999, ("school", OPS): 0.001}),
    ("published/all_shares", "shared_rl_a", "rl", {("zoo", OPS): 1.0}),
    ("published/all_shares", "shared_rl_b", "rl", {("school", OPS): 1.0}),
    ("published/all_shares", "some_rl_a", "rl", {("zoo", OPS): 1.0}),
    ("published/all_shares", "some_rl_tenth", "rl", {("zoo", OPS): 0.9, ("school", OPS): 0.1}),
    ("published/all_shares", "some_rl_b", "rl", {("school", OPS): 1.0}),
    ("published/all_shares", "some_rl_hundredth", "rl", {("zoo", OPS): 0.99, ("school", OPS): 0.01}),
    ("published/all_shares", "shared_rl_fiftieth", "rl", {("zoo", OPS): 0.98, ("school", OPS): 0.02}),
    ("published/all_shares", "shared_rl_tenth", "rl", {("zoo", OPS): 0.9, ("school", OPS): 0.1}),
    ("published/all_shares", "shared_rl_half", "rl", {("zoo", OPS): 0.5, ("school", OPS): 0.5}),
]


@pytest.mark.parametrize(("study", "arm", "stage", "published"), RECIPES, ids=lambda one: one if isinstance(one, str) else "")
def test_a_stage_learns_from_what_table_2_says(study: str, arm: str, stage: str, published: Recipe) -> None:
    assert recipe(study, arm, stage) == pytest.approx(published)


TOKENS = {
    "all": dict(
        zip(OPS, [363, 390, 413, 452, 448, 460, 508, 529, 547, 566, 591, 612, 639, 657, 700, 714, 735, 758, 785], strict=True)
    ),
    "zoo": dict(
        zip(OPS, [349, 371, 395, 429, 428, 440, 486, 508, 525, 544, 568, 591, 615, 632, 674, 687, 709, 731, 757], strict=True)
    ),
    "school": {2: 346},
}
"""Tokens of a problem in the mean (docs/log.md), by theme and op."""


@pytest.mark.parametrize("study", [study for study in STUDIES if study != "before_rl"])
def test_pre_training_reads_no_problem_twice(study: str) -> None:
    """10B tokens are one epoch: each set has at least its share of them."""
    plan = planned(study)
    for stage in [stage for stage in plan.stages.values() if stage.kind == "pretrain"]:
        tokens: dict[str, float] = {}
        for corpus in [plan.stages[digest] for digest in corpus_inputs(stage.deps)]:
            for place, share in enumerate(corpus.spec.mix):  # type: ignore[attr-defined]
                data = plan.stages[corpus.deps[f"data.{place}"]].spec
                assert isinstance(data, ProblemsSpec)
                ((ops),) = data.bands.values()
                theme = next(iter(data.task.themes)) if len(data.task.themes) == 1 else "all"  # type: ignore[union-attr]
                if set(ops) <= set(TOKENS[theme]):  # few of all ops of the other context: a thousandth of 10B
                    name = f"{theme} {list(ops)} {share}"
                    tokens[name] = tokens.get(name, 0.0) + data.size * sum(TOKENS[theme][op] * part for op, part in ops.items())
        assert tokens
        for name, there in tokens.items():
            assert there > 10e9 * float(name.rpartition(" ")[2]), name


def test_one_base_serves_all_studies_of_section_3_and_5() -> None:
    shared = ["extrapolation", "published/six_budgets", "process_rewards", "before_rl", "deviations"]
    assert len({row_of(study, "base").path[0].digest for study in shared}) == 1


# -- pools, samples, rewards, budgets -------------------------------------------------------------------------------------


def per_op(spec: ProblemsSpec) -> list[float]:
    """Problems of each op in each band."""
    return [spec.size * spec.shares[band] * share for band, ops in spec.bands.items() for share in ops.values()]


@pytest.mark.parametrize(("split", "published"), [("rl", 50_000), ("validation", 200), ("test", 1_000)])
def test_every_op_has_as_many_problems_as_released(split: str, published: int) -> None:
    for study in STUDIES:
        for spec in of_kind(study, "problems"):
            if spec.split == split:
                assert per_op(spec) == pytest.approx([published] * len(per_op(spec))), study


def test_bands_of_the_evaluations_are_the_published_ones() -> None:
    report = planned("extrapolation").stages[planned("extrapolation").report].spec
    assert isinstance(report, ReportSpec)
    bands = {name: tuple(ops) for name, ops in report.bands.items()}
    assert bands == {"id": ID, "edge": EDGE, "beyond": HARD, "hard": (17, 18, 19, 20)}
    contexts = planned("published/all_shares").stages[planned("published/all_shares").report].spec
    assert {op for ops in contexts.bands.values() for op in ops} == set(OPS)  # type: ignore[attr-defined]


@pytest.mark.parametrize("study", STUDIES)
def test_tables_and_claims_show_pass_at_128_of_128_samples(study: str) -> None:
    plan = planned(study)
    report = plan.stages[plan.report].spec
    assert isinstance(report, ReportSpec)
    shown = {cell for table in report.tables.values() for cell in table.cells}
    shown |= {str(claim.test.value or claim.test.difference) for claim in report.claims}
    assert {cell for cell in shown if cell.startswith("strict_pass@")} == {"strict_pass@1", "strict_pass@128"}
    for row in report.arms:
        asked = [*row.evaluations.values(), *(rung.digest for rung in row.rungs)]
        for first in asked:
            blocks = [plan.stages[digest].spec for digest in (first, *report.blocks[first])]
            assert sum(spec.num_samples for spec in blocks) == 128  # type: ignore[attr-defined]


REWARDS = {
    ("extrapolation", "rl_edge"): ("outcome", None, None),
    ("published/five_exposures", "half_rl"): ("outcome", None, None),
    ("published/all_shares", "some"): ("process", "strict", None),
    ("published/six_budgets", "whole[rl_share=0.5]"): ("process", "strict", None),
    ("process_rewards", "outcome"): ("outcome", None, None),
    ("process_rewards", "strict"): ("process", "strict", None),
    ("process_rewards", "blend_2"): ("process", "blend_released", 0.2),
    ("process_rewards", "blend_5"): ("process", "blend_released", 0.5),
}
"""[C]: section 3 pays the answer, sections 4 and 5 the strict process, and blends pay nothing for a wrong answer."""


@pytest.mark.parametrize(("study", "arm"), REWARDS)
def test_each_study_pays_what_its_released_configuration_pays(study: str, arm: str) -> None:
    digest = next(part.digest for part in row_of(study, arm).path if part.kind == "rl")
    reward = planned(study).stages[digest].spec.reward  # type: ignore[attr-defined]
    blended = getattr(reward, "form", "").startswith("blend")
    assert (reward.name, getattr(reward, "form", None), reward.alpha if blended else None) == REWARDS[study, arm]


def test_rl_takes_204800_prompts_unless_it_has_a_budget() -> None:
    for study in ("extrapolation", "published/five_exposures", "published/all_shares", "process_rewards"):
        assert {spec.steps * spec.prompts_per_step for spec in of_kind(study, "rl")} == {204_800}


TABLE_3 = {
    "third": (1_048_576_000, [(2000, 0), (1600, 10), (1000, 25), (400, 40), (0, 50)]),
    "whole": (2_097_152_000, [(4000, 0), (3200, 20), (2000, 50), (800, 80), (0, 100)]),
    "two": (4_194_304_000, [(8000, 0), (6400, 40), (4000, 100), (1600, 160), (0, 200)]),
    "four": (8_388_608_000, [(16000, 0), (12800, 80), (8000, 200), (3200, 320), (0, 400)]),
    "eight": (16_777_216_000, [(32000, 0), (25600, 160), (16000, 400), (6400, 640), (0, 800)]),
    "longest": (20_000_000_000, [(38147, 0), (30517, 191), (19073, 477), (7629, 763), (0, 954)]),
}
"""Arm -> tokens of its budget, and steps of mid-training and of RL at shares of RL of 0, 20, 50, 80 and 100 %."""


@pytest.mark.parametrize("arm", TABLE_3)
def test_budgets_come_out_as_in_table_3(arm: str) -> None:
    study, (budget, rows) = "published/six_budgets", TABLE_3[arm]
    for share, published in zip(("0", "0.2", "0.5", "0.8", "1"), rows, strict=True):
        specs = [planned(study).stages[part.digest] for part in row_of(study, f"{arm}[rl_share={share}]").path]
        mid = sum(stage.spec.tokens // 524_288 for stage in specs if stage.kind == "midtrain")  # type: ignore[attr-defined]
        rl = sum(stage.spec.steps for stage in specs if stage.kind == "rl")  # type: ignore[attr-defined]
        assert (mid, rl) == (pytest.approx(published[0], abs=1), published[1])  # the paper cuts half a batch
        charged = sum(paper_tokens(stage.kind, stage.as_json()["spec"]) for stage in specs[1:])
        assert charged == pytest.approx(budget, rel=0 if budget % 524_288 == 0 else 1e-3)


def test_mid_training_reads_no_problem_twice() -> None:
    """20B tokens of the longest are one epoch, too."""
    for spec in of_kind("published/six_budgets", "problems"):
        if spec.split == "train" and set(spec.bands) in ({"edge"}, {"id"}):
            ((ops),) = spec.bands.values()
            share = 0.8 if tuple(ops) == EDGE else 0.2
            assert 20 * spec.size * sum(TOKENS["all"][op] * part for op, part in ops.items()) > share * 20e9


# -- what cannot be the same --------------------------------------------------------------------------------------------

UNMATCHED = [
    "64 x 4 x 2,048 a batch", "one seed", "special tokens", "share of a band in the mean over ops",
    "ordered pass@k", "duplicates", "a thousandth of hard problems",
    "AdamW's second moment", "reward of the exposure runs", "two mid-training ranges",
    "novelty of graphs", "one epoch of mid-training",
]  # fmt: skip
"""Rows of docs/published.md's table."""


def test_what_cannot_be_matched_is_documented_with_its_reason() -> None:
    text = (ROOT / "docs/published.md").read_text(encoding="utf-8")
    rows = [line.split("|")[1].strip() for line in text.splitlines() if line.startswith("| ") and "---" not in line]
    assert sorted(rows[1:]) == sorted(UNMATCHED)
