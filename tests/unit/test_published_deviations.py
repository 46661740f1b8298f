"""Where the paper and its released code say different things, each arm of `interplay/deviations` is the one and `published` the
other."""

from typing import Any

import pytest
from test_published import LOW, MIDDLE, TOP, planned, row_of, value

from interplay.core.digest import corpus_inputs
from interplay.data.spec import CorpusSpec

DEVIATIONS: dict[str, tuple[str, str, Any]] = {
    "half_rate": ("base", "optimizer.learning_rate", 1e-4),
    "other_packing": ("base", "corpus.packing", "isolated"),
    "groups_of_4": ("rl", "method.allocation.num_generations", 4),
    "other_kl": ("rl", "method.loss.beta", 0.0),
    "two_epochs": ("rl", "steps", 400),
    "strict": ("rl", "reward.form", "strict"),
    "strict_no_extra": ("rl", "reward.verify.extra_nodes", "penalised"),
    "blend": ("rl", "reward.form", "blend"),
    "blend_gated": ("rl", "reward.form", "blend_released"),
    "other_temperature": ("eval", "temperature", 1.0),
}


@pytest.mark.parametrize("arm", DEVIATIONS)
def test_a_deviation_is_what_its_arm_says_and_published_is_not(arm: str) -> None:
    stage, key, deviating = DEVIATIONS[arm]
    assert of_arm(arm, stage, key) == deviating
    assert of_arm("published", stage, key) != deviating


def of_arm(arm: str, stage: str, key: str) -> Any:
    """A value in an arm of deviations; None where its reward has no such key."""
    plan, row = planned("deviations"), row_of("deviations", arm)
    digest = row.evaluations.get(stage) or next(part.digest for part in row.path if part.name == stage)
    found = plan.stages[digest]
    if key.startswith("corpus."):
        found, key = plan.stages[corpus_inputs(found.deps)[0]], key.removeprefix("corpus.")
    try:
        return value(found.spec, key)
    except AttributeError:
        return None


def test_the_published_arm_is_that_of_extrapolation_and_the_mid_trainings_differ_in_annealing_alone() -> None:
    assert row_of("deviations", "published").path == row_of("extrapolation", "rl_edge").path
    plan = planned("deviations")
    mid, long = (plan.stages[row_of("deviations", arm).path[1].digest].spec for arm in ("annealed", "not_annealed"))
    assert row_of("deviations", "not_annealed").path[1].step == 2000 == mid.tokens // 524_288  # type: ignore[attr-defined]
    own = {"tokens": 1, "checkpoints": []}
    assert mid.model_copy(update=own) == long.model_copy(update=own)
    assert long.tokens == 20_000_000_000  # type: ignore[attr-defined]


def test_a_surplus_of_op_3_is_that_of_the_released_weights() -> None:
    """Released weights: 0.86 for op 3 among 1.8 in all, of which op 3 has 2.7B of 11.6B tokens; the rest keeps 20 : 30 : 50."""
    plan, row = planned("deviations"), row_of("deviations", "much_op3")
    corpus = plan.stages[corpus_inputs(plan.stages[row.path[0].digest].deps)[0]]
    assert isinstance(corpus.spec, CorpusSpec)
    shares = {tuple(plan.stages[corpus.deps[f"data.{i}"]].spec.bands.popitem()[1]): share  # type: ignore[attr-defined]
              for i, share in enumerate(corpus.spec.mix)}  # fmt: skip
    assert shares[3,] + shares[LOW] / 3 == pytest.approx(2.7 / 11.6, abs=1e-3)
    assert (shares[LOW] / shares[TOP], shares[MIDDLE] / shares[TOP]) == (
        pytest.approx(0.4, rel=1e-3),
        pytest.approx(0.6, rel=1e-3),
    )
