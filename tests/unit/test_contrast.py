"""Clean contrasts: an arm differs from its control in exactly what it declares."""

from pathlib import Path

import pytest
from test_arms import configs, study

from interplay.core.model import UserError
from interplay.study.expand import plan_study

__all__ = ["configs"]

EDGE = "rl: {path: [base, rl], control: base}"
CLEAN = {
    "a longer path": ["longer: {path: [base, rl, rl2], control: rl}"],
    "a key of a stage": ["hot: {path: [base, rl], control: rl, set: {rl.temperature: 0.7}}"],
    "other data": ["hard: {path: [base, rl], control: rl, set: {rl.data: {hard: 1.0}}}"],
    "the number and shares of its sets": [
        "mixed: {path: [base], control: base, set: {base.data: {corpus: 0.7, edge: 0.3}}}",
        "more: {path: [base, rl], control: rl, set: {rl.data: {edge: 0.4, hard: 0.6}}}",
    ],
    "a key of the task": ["five: {path: [base, rl], control: rl, set: {task.modulus: 7}}"],
    "a whole part of a spec": ["sgd: {path: [base, rl], control: rl, set: {rl.optimizer: {learning_rate: 0.5}}}"],
    "another member of a union": ["blind: {path: [base, rl], control: rl, set: {rl.reward.name: outcome}}"],
    "the packing of a corpus": ["causal: {path: [base], control: base, set: {base.corpus.packing: causal}}"],
    "a key of the evaluation": ["many: {path: [base, rl], control: rl, set: {eval.num_samples: 8}}"],
    "a number of samples that takes several stages": ["most: {path: [base, rl], control: rl, set: {eval.num_samples: 128}}"],
    "a key set by both": [
        "hot: {path: [base, rl], set: {rl.temperature: 0.7}}",
        "hot_hard: {path: [base, rl], control: hot, set: {rl.temperature: 0.7, rl.data: {hard: 1.0}}}",
    ],
    "a key that the control alone sets, declared": [
        "hot: {path: [base, rl], set: {rl.temperature: 0.7}}",
        "cold_hard: {path: [base, rl], control: hot, set: {rl.data: {hard: 1.0}}, differs: [rl.temperature]}",
    ],
    "a grid that passes through the control's values": [
        "g: {path: [base, rl], control: rl, set: {rl.data: {hard: 1.0}}, grid: {rl.temperature: [0.5, 1.0]}}"
    ],
    "a part of a whole that it sets, brought back to the control's": [
        "sgd: {path: [base, rl], control: rl, set: {rl.optimizer: {learning_rate: 0.5, weight_decay: 0.1}, "
        "rl.optimizer.weight_decay: 0.0}}"
    ],
    "another random stream": ["again: {path: [base, rl], control: rl, set: {rl.seed: 100}}"],
    "a whole stage, declared": ["hot: {path: [base, rl], control: rl, set: {rl.temperature: 0.7}, differs: [rl]}"],
    "how it is run": ["fast: {path: [base, rl], control: rl, set: {rl.temperature: 0.7, rl.run.threads: 2}}"],
}


@pytest.mark.parametrize("case", CLEAN)
def test_an_arm_may_differ_from_its_control_in(case: str, configs: Path) -> None:
    study(configs, EDGE, *CLEAN[case])
    mend(configs)
    plan_study(configs, "mine", "smoke")


UNCLEAN = {
    "a key that only the control sets": (
        ["hot: {path: [base, rl], set: {rl.temperature: 0.7}}", "x: {path: [base, rl], control: hot, set: {rl.minibatches: 2}}"],
        ("arms.x.control", "rl.temperature = 1.0 and its control 0.7", "put rl.temperature into set or differs"),
    ),
    "data that only the control changes": (
        ["hard: {path: [base, rl], set: {rl.data: {hard: 1.0}}}", "x: {path: [base, rl, rl2], control: hard}"],
        ("arms.x.control", "rl.data.edge = 1.0 and its control None"),
    ),
    "shares that only the control changes": (
        [
            "mixed: {path: [base], set: {base.data: {corpus: 0.7, edge: 0.3}}}",
            "x: {path: [base, rl], control: mixed, set: {rl.minibatches: 2}}",
        ],
        ("arms.x.control", "base."),
    ),
    "a member of a union": (
        [
            "blind: {path: [base, rl], set: {rl.reward.name: outcome}}",
            "x: {path: [base, rl], control: blind, set: {rl.minibatches: 2}}",
        ],
        ("rl.reward.name = 'process' and its control 'outcome'",),
    ),
    "the task": (
        ["seven: {path: [base, rl], set: {task.modulus: 7}}", "x: {path: [base, rl], control: seven, set: {rl.minibatches: 2}}"],
        ("task.modulus = 5 and its control 7",),
    ),
    "nothing, though it sets a key": (
        ["x: {path: [base, rl, rl2], control: rl, set: {rl.temperature: 1.0}}"],
        ("arms.x.set: rl.temperature: its control 'rl' has 1.0 too", "change it"),
    ),
    "nothing, though it says so": (
        ["x: {path: [base, rl, rl2], control: rl, differs: [rl.temperature]}"],
        ("arms.x.differs: rl.temperature: its control 'rl' has 1.0 too", "change it"),
    ),
    "nothing at all, in one combination": (
        ["x: {path: [base, rl], control: rl, grid: {rl.temperature: [0.5, 1.0]}}"],
        ("arms.x.control", "x[temperature=1.0] does not differ from it; exclude it"),
    ),
}


@pytest.mark.parametrize("case", UNCLEAN)
def test_an_arm_is_refused_that_differs_from_its_control_in(case: str, configs: Path) -> None:
    lines, words = UNCLEAN[case]
    study(configs, EDGE, *lines)
    mend(configs)
    with pytest.raises(UserError) as caught:
        plan_study(configs, "mine", "smoke")
    for word in words:
        assert word in str(caught.value)
    assert str(caught.value).startswith("configs/study/mine.yaml:")


def mend(configs: Path) -> None:
    """A second stage of RL, for longer paths."""
    path = configs / "study/mine.yaml"
    text = path.read_text()
    method = "  - /method@stages.rl2.method: grpo\n  - _self_"
    text = text.replace("  - _self_", method, 1).replace("  eval: {kind", "  rl2: {kind: rl, data: {hard: 1.0}}\n  eval: {kind")
    path.write_text(text)
