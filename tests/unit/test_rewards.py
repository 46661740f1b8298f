"""Composed rewards: what gate, sum and product pay, what is right, which columns there are, and what is refused."""

import math
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import test_rl_loop as loops
import world
from hypothesis import given, strategies as st
from pydantic import TypeAdapter, ValidationError
from rl_cases import RIGHT, WRONG

from interplay.core.metrics import read
from interplay.rl import loop
from interplay.rl.reward_spec import ComposedReward, LengthReward, OwnReward, Reward
from interplay.rl.rewards import Graders, Rewards, right_by, score_completions
from interplay.rl.spec import RLSpec
from interplay.tasks.verdict import Verdict

LUCKY = Verdict(False, True, 0.5, "value")
CUT = Verdict(False, False, 0.0, "truncated")
VERDICTS = [RIGHT, LUCKY, WRONG, CUT]
LETTERS = Graders(lambda texts: [list(map(ord, text)) for text in texts])
NAMES = ("one", "two", "three", "four")


def parsed(value: dict[str, Any]) -> ComposedReward:
    return TypeAdapter(Reward).validate_python(value)


def paying(pays: list[list[float]], **more: Any) -> list[dict[str, Any]]:
    """Terms of which the n-th pays so much for each completion."""
    body = "def f(problems, completions, verdicts, pays):\n    return pays\n"
    return [
        {"reward": OwnReward(function="a.py:f", source=body, options={"pays": one}), "part": name, **more}
        for name, one in zip(NAMES, pays, strict=False)
    ]


def scored(spec: ComposedReward, texts: int = 3) -> Rewards:
    return score_completions(spec, [None] * texts, ["."] * texts, [RIGHT] * texts)


pay = st.floats(-8, 8, allow_subnormal=False)
payments = st.lists(st.lists(pay, min_size=3, max_size=3), min_size=1, max_size=4)


@given(pays=payments, weights=st.lists(pay, min_size=4, max_size=4), factor=st.sampled_from([0.5, 2.0, -4.0]))
def test_a_sum_is_linear_in_its_weights_and_its_parts_are_what_the_terms_pay(
    pays: list[list[float]], weights: list[float], factor: float
) -> None:
    def of(times: float) -> Rewards:
        terms = [{**term, "weight": times * weight} for term, weight in zip(paying(pays), weights, strict=False)]
        return scored(ComposedReward(sum=terms))

    one, scaled = of(1.0), of(factor)
    assert scaled.sequence == [factor * value for value in one.sequence]
    assert one.sequence == pytest.approx([sum(w * p[i] for w, p in zip(weights, pays, strict=False)) for i in range(3)])
    assert one.parts == scaled.parts == dict(zip(NAMES, pays, strict=False))


@given(pays=payments, above=pay, paid=st.lists(st.floats(0.5, 4), min_size=3, max_size=3))
def test_a_gate_pays_nothing_if_and_only_if_one_of_its_terms_is_not_above(
    pays: list[list[float]], above: float, paid: list[float]
) -> None:
    gate = paying(pays, above=above)
    behind = scored(ComposedReward(gate=gate, sum=[{**paying([paid])[0], "part": "behind"}])).sequence
    alone = scored(ComposedReward(gate=gate)).sequence
    shut = [any(one[i] <= above for one in pays) for i in range(3)]
    assert [value == 0 for value in behind] == shut
    assert [value for value in behind if value] == [paid[i] for i in range(3) if not shut[i]]
    assert alone == [float(not one) for one in shut]


@given(pays=payments, added=st.lists(pay, min_size=3, max_size=3))
def test_a_product_multiplies_its_terms_and_the_sum_beside_it(pays: list[list[float]], added: list[float]) -> None:
    beside = [{**paying([added])[0], "part": "added"}]
    products = [math.prod(one[i] for one in pays) for i in range(3)]
    assert scored(ComposedReward(product=paying(pays))).sequence == pytest.approx(products)
    both = scored(ComposedReward(sum=beside, product=paying(pays))).sequence
    assert both == pytest.approx([product * one for product, one in zip(products, added, strict=True)])


def test_a_right_answer_in_its_budget_as_l1_has_it_by_hand() -> None:
    """LCPO-Max with alpha 0.1 and delta 0.5 at a budget of 4: 3 letters are worth 0.6, 9 of them 0, 1 letter 0.8."""
    length = {"name": "length", "budget": 4, "alpha": 0.1}
    spec = parsed({"product": [{"reward": {"name": "outcome"}}, {"reward": length}]})
    texts = ["abc", "abcdefghi", "a", "abc"]
    found = score_completions(spec, [None] * 4, texts, [RIGHT, RIGHT, LUCKY, WRONG], LETTERS)
    assert found.sequence == pytest.approx([0.6, 0, 0.8, 0])
    exact = score_completions(LengthReward(budget=4, alpha=0.1, form="exact"), [None] * 4, texts, VERDICTS, LETTERS)
    assert exact.sequence == pytest.approx([-0.1, -0.5, -0.3, -0.1])


def test_what_terms_are_made_of_is_below_their_names() -> None:
    spec = parsed({"sum": [{"reward": {"name": "process", "form": "blend"}, "weight": 0.5}, {"reward": {"name": "form"}}]})
    found = score_completions(spec, [None] * 4, [""] * 4, VERDICTS)
    assert found.sequence == pytest.approx([1.5, 0.5 * (0.2 + 0.8 * 0.5) + 1, 0.5 * 0.8 * WRONG.score + 1, 0])
    assert tuple(found.parts) == spec.parts() == ("process", "process/outcome", "process/steps", "form")


@pytest.mark.parametrize(
    ("terms", "more", "lucky"),
    [
        (["outcome", "form"], {}, True),
        (["process", "form"], {}, False),
        (["form"], {}, True),
        (["process", "outcome"], {"right": "strict"}, False),
        (["process", "outcome"], {"right": "answer"}, True),
    ],
)
def test_what_is_right_is_the_verdict_that_the_terms_are_about(terms: list[str], more: dict[str, Any], lucky: bool) -> None:
    spec = parsed({"sum": [{"reward": {"name": name}} for name in terms], **more})
    assert right_by(spec, [RIGHT, LUCKY, WRONG]).tolist() == [True, lucky, False]


OUTCOME, PROCESS, FORM = ({"reward": {"name": name}} for name in ("outcome", "process", "form"))


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ({"sum": [OUTCOME, PROCESS]}, r"outcome \(answer\) and process \(strict\) are about different verdicts; write right:"),
        ({"sum": []}, "no terms; write gate, sum or product"),
        ({"sum": [OUTCOME], "gate": [OUTCOME]}, "two terms are called 'outcome'; give one of them another name"),
        ({"product": [{**OUTCOME, "weight": 2.0}]}, "weight belongs to a term of sum; take it away from outcome"),
        ({"sum": [OUTCOME, {**FORM, "above": 0.5}]}, "above belongs to a term of gate; take it away from form"),
        ({"sum": [{**OUTCOME, "part": "a/b"}]}, "part: 'a/b' cannot be a column"),
        ({"sum": [{"reward": {"name": "steps"}}]}, "'steps' found"),
        (
            {"sum": [PROCESS, {"reward": {"name": "process", "verify": {"separator": "?"}}, "part": "again"}]},
            "verify: two process terms judge by different rules",
        ),
    ],
)
def test_terms_that_do_not_go_together_are_refused(value: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        parsed(value)


def test_gdpo_weighs_the_parts_of_a_composed_reward() -> None:
    def of(part: str) -> RLSpec:
        method = {"paper": "p", "advantage": {"name": "gdpo", "rewards": {"outcome": 1.0, part: 0.5}}}
        return RLSpec(method=method, mix=[1.0], steps=1, reward={"sum": [OUTCOME, FORM]})

    assert of("form").reward.parts() == ("outcome", "form")
    with pytest.raises(ValidationError, match="forms: the parts are outcome, form"):
        of("forms")


def test_a_run_has_a_column_and_a_curve_for_each_term(tmp_path: Path) -> None:
    reward = {"gate": [FORM], "sum": [OUTCOME, {"reward": {"name": "length", "budget": 4, "form": "exact"}, "weight": 0.5}]}
    spec = loops.spec_of(reward=parsed(reward), steps=2, mix=[1.0])
    inputs = {"init": world.model(tmp_path, "m" * 12), "data.0": world.problem_set(tmp_path, "a" * 12, 30)}
    loop.train_policy(spec, inputs, tmp_path / "out", loops.HOW)
    lines, rows = read(tmp_path / "out"), pq.read_table(tmp_path / "out" / "rollouts.parquet").to_pylist()
    names = {f"reward/{name}" for name in ("form", "outcome", "length")}
    assert all(names <= set(line) for line in lines)
    for row in rows:
        open_sum = row["reward/outcome"] + 0.5 * row["reward/length"] if row["reward/form"] else 0.0
        assert row["reward"] == pytest.approx(open_sum)
        assert row["reward/outcome"] == row["answer"]
