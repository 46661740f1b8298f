"""Stages of tuning in a plan: what they read, what follows them, what they cost, and what of them is refused before any job."""

from pathlib import Path

import pytest
from sift_study import STUDY, enter, named, plan, refusal

from interplay.kinds.stages import planned_costs
from interplay.study.plan import Plan

PAIRS = [
    (
        "  test: {bands: [id, edge], split: test}\n",
        "  test: {bands: [id, edge], split: test}\n"
        "  pairs: {mix: {edge: 1.0}, steps: [{name: preference_pairs, arm: base, evaluate: probe}]}\n",
    ),
    (
        "  probe: {kind: evaluate",
        "  dpo: {kind: prefer, data: {pairs: 1.0}, validation: pairs, steps: 4}\n"
        "  forget: {kind: unlearn, forget: {edge: 1.0}, retain: {hard: 1.0}, steps: 4, checkpoints: [2]}\n"
        "  judge: {kind: reward_model, data: {pairs: 1.0}, validation: pairs, samples: probe, steps: 4}\n"
        "  probe: {kind: evaluate",
    ),
    (
        "  rl: {path: [base, rl], control: base}\n",
        "  rl: {path: [base, rl], control: base}\n  dpo: {path: [base, dpo], control: base}\n"
        "  forget: {path: [base, forget], control: base}\n  judge: {path: [base, judge], control: base}\n",
    ),
]
"""The study with a stage of each kind."""


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return enter(tmp_path, monkeypatch)


def labelled(made: Plan, start: str) -> list[str]:
    return [digest for digest, stage in made.stages.items() if stage.label.startswith(start)]


def test_each_reads_its_sets_and_the_model_before(root: Path) -> None:
    made = plan(root, *PAIRS)
    base = labelled(made, "base/base@0")[0]
    pairs = labelled(made, "data.pairs")[-1]
    assert made.stages[pairs].kind == "curate"
    dpo, forget, judge = (named(made, f"{name}/{name}@0") for name in ("dpo", "forget", "judge"))
    assert dpo.deps == {"init": base, "data.0": pairs, "validation": pairs}
    assert {role: made.stages[dep].label for role, dep in forget.deps.items() if role != "init"} == {
        "forget.0": "data.edge", "retain.0": "data.hard",
    }  # fmt: skip
    assert set(judge.deps) == {"init", "data.0", "validation", "prompts", "samples.0"}
    assert made.stages[judge.deps["samples.0"]].deps == {"model": base, "data": judge.deps["prompts"]}


def test_what_follows_a_reward_model_starts_from_the_model_before(root: Path) -> None:
    made = plan(root, *PAIRS)
    assert not labelled(made, "judge/eval"), "its evaluation is that of the base, made once"
    on = plan(root, *PAIRS, ("path: [base, judge]", "path: [base, judge, dpo]"))
    assert named(on, "dpo/dpo@0").deps["init"] == labelled(on, "base/base@0")[0]


def test_an_arm_that_forgets_other_sets_declares_their_shares_with_their_names(root: Path) -> None:
    """The shares in the spec follow from the names, so that the arm differs from its control in what it declares alone."""
    other = (
        "  forget: {path: [base, forget], control: base}\n",
        "  forget: {path: [base, forget], control: base}\n"
        "  more: {path: [base, forget], control: forget, set: {forget.forget: {edge: 0.5, corpus: 0.5}}}\n",
    )
    made = plan(root, *PAIRS, other)
    assert named(made, "more/forget@0").spec.forget_mix == [0.5, 0.5]  # type: ignore[attr-defined]


def test_pairs_cost_what_they_may_be_long_and_a_reference_a_pass_more(root: Path) -> None:
    made = plan(root, *PAIRS)
    found = planned_costs(made.stages_json())
    dpo = found[next(digest for digest, stage in made.stages.items() if stage.kind == "prefer")]
    assert dpo.tokens == 4 * 2 * 32 * 512
    assert dpo.flops == dpo.parameters * 8 * dpo.tokens
    free = plan(
        root, *PAIRS, ("validation: pairs, steps: 4}\n  forget", "validation: pairs, steps: 4, loss_type: simpo}\n  forget")
    )
    simpo = planned_costs(free.stages_json())[next(digest for digest, stage in free.stages.items() if stage.kind == "prefer")]
    assert simpo.flops == simpo.parameters * 6 * simpo.tokens


CASES: dict[str, tuple[list[tuple[str, str]], str]] = {
    "pairs from a set that holds none": (
        [("prefer, data: {pairs: 1.0}", "prefer, data: {edge: 1.0}")],
        "stages.dpo.data = ['edge']: holds no pairs; name a set that is made with a step preference_pairs",
    ),
    "a validation set without pairs": (
        [("prefer, data: {pairs: 1.0}, validation: pairs", "prefer, data: {pairs: 1.0}, validation: hard")],
        "stages.dpo.validation = 'hard': holds no pairs; name a set that is made with a step preference_pairs",
    ),
    "nothing to retain": (
        [("retain: {hard: 1.0}, ", "")],
        "stages.forget.retain: missing; name the problem sets and their shares",
    ),
    "data to unlearn": (
        [("forget: {edge: 1.0}, retain", "data: {edge: 1.0}, forget: {edge: 1.0}, retain")],
        "stages.forget.data: unknown key 'data' of unlearn; it is a key of pretrain, midtrain, sft, rl, teach, prefer, reward_model, "
        "custom, evaluate",
    ),
    "forgetting what is tested": (
        [("forget: {edge: 1.0}, retain", "forget: {test: 1.0}, retain")],
        "stages.forget.forget = 'test': data.test is of split test, which nothing is trained on; take another split, or declare "
        "leak: true there",
    ),
    "a judge without held-out pairs": (
        [("reward_model, data: {pairs: 1.0}, validation: pairs", "reward_model, data: {pairs: 1.0}")],
        "stages.judge.validation: missing; name a set of pairs, by which the model is judged",
    ),
    "samples for preference optimisation": (
        [("{kind: prefer,", "{kind: prefer, samples: probe,")],
        "stages.dpo.samples: unknown key 'samples' of prefer; it is a key of reward_model",
    ),
    "an option that the loss does not read": (
        [("validation: pairs, steps: 4}\n  forget", "validation: pairs, steps: 4, simpo_gamma: 1.0}\n  forget")],
        "simpo_gamma is used by loss_type simpo only; remove it from sigmoid",
    ),
    "an unknown loss": (
        [("validation: pairs, steps: 4}\n  forget", "validation: pairs, steps: 4, loss_type: sigmiod}\n  forget")],
        "did you mean 'sigmoid'?",
    ),
    "training on what uld leaves": (
        [("checkpoints: [2]}", "objective: uld}"), ("path: [base, forget]", "path: [base, forget, dpo]")],
        "stages.dpo: the stage before it leaves a model and an assistant (objective uld), which can be evaluated and not trained "
        "on; end the path there",
    ),
    "a checkpoint of a reward model": (
        [("path: [base, judge]", "path: [base, judge@2, dpo]")],
        "no checkpoint is kept at step 2; kept: none (see `checkpoints` of the stage)",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_what_is_wrong_is_refused_in_a_line(case: str, root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    edits, message = CASES[case]
    text = STUDY
    for old, new in PAIRS:
        assert text.count(old) == 1
        text = text.replace(old, new)
    for old, _ in edits:
        assert text.count(old) == 1, old
    assert refusal(root, capsys, *PAIRS, *edits).endswith(message)
