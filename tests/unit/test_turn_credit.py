"""Credit by turns: every source, baseline, propagation and mix by hand, and against what the authors' released functions return."""

import math
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import test_rl_update as toy
import torch
from hypothesis import given, strategies as st
from pydantic import TypeAdapter, ValidationError
from rl_cases import RIGHT, batch_of, now_of

from interplay.data.trajectory import Segment
from interplay.rl import turn_credit
from interplay.rl.advantage_spec import Advantage, GainAdvantage, TurnAdvantage, TurnsAdvantage, ValueHead
from interplay.rl.advantages import advantages, critic, gae
from interplay.rl.batch import Batch, MicroBatch, Span, numbered_turns, take
from interplay.rl.loss_spec import ClippedLoss
from interplay.rl.losses import TURNS as TURN_NUMBERS, token_losses
from interplay.rl.records import credit_metrics
from interplay.rl.spec import RLSpec
from interplay.rl.turn_credit import critic_targets, earned, of_turns
from interplay.rollout.calls import Called, matched, read_call, similarity, transported

PAID = [[0.2, 0.5, 1.0], [0.0, 0.4, 0.3], [0.6, 0.1], [1.0, 0.0], [0.25, 0.75]]
"""What turns are paid, of two groups of three and two episodes."""
GROUPS = [0, 0, 0, 1, 1]
READ = [["door", "key"], ["key", "key"], ["door"], ["door"], ["key"]]
VALUES = [[0.5, 0.1, 0.2], [0.3, 0.3, 0.3], [0.4, 0.9], [0.2, 0.6], [0.8, 0.05]]


def spec(**keys: Any) -> TurnsAdvantage:
    found = TypeAdapter(Advantage).validate_python({"name": "turns", **keys})
    assert isinstance(found, TurnsAdvantage)
    return found


def credit(found: TurnsAdvantage, batch: Batch, now: Any) -> list[list[float]]:
    return turn_credit.credit(found, batch, earned(found, batch, now))


def played(
    paid: list[list[float]],
    groups: list[int],
    rewards: list[float] | None = None,
    read: list[list[str]] | None = None,
    said: list[list[str]] | None = None,
    **more: Any,
) -> Batch:
    """Episodes of turns of two tokens, with one token read after each but the last."""
    lengths = [3 * len(row) - 1 for row in paid]
    observed = torch.zeros(len(paid), max(lengths), dtype=torch.bool)
    observed[:, 2::3] = True
    observed &= torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]
    segments = []
    for i, row in enumerate(paid):
        here: list[Segment] = []
        for t, value in enumerate(row):
            here.append(Segment("action", said[i][t] if said else "a", t, reward=value))
            if t < len(row) - 1:
                here.append(Segment("observation", read[i][t] if read else "o", t))
        segments.append(tuple(here))
    spans = [[Span(3 * t, 3 * t + 2, t, value) for t, value in enumerate(row)] for row in paid]
    given = {"observed": observed, "turns": [[RIGHT] * len(row) for row in paid], "spans": spans, "segments": segments, **more}
    return batch_of(rewards or [sum(row) for row in paid], groups, lengths, **given)


def valued(values: list[list[float]], batch: Batch) -> Batch:
    """With the critic's value at the first token of each turn, and what nobody may read at the others."""
    found = torch.full(batch.tokens.shape, 77.0)
    for row, of_row in enumerate(values):
        for t, value in enumerate(of_row):
            found[row, 3 * t] = value
    return replace(batch, values=found)


def same(found: list[list[float]], expected: list[list[float]], **how: float) -> None:
    assert [len(row) for row in found] == [len(row) for row in expected]
    for one, other in zip(found, expected, strict=True):
        assert one == pytest.approx(other, **(how or {"abs": 1e-6}))


# --- what the authors' released functions return for PAID, GROUPS, READ and VALUES; commits in tests/conformance ---


def test_matchtir_is_the_mean_of_the_episodes_and_the_turns_advantage_as_released() -> None:
    found = spec(
        propagation={"name": "returns", "gamma": 0.9}, std_epsilon=1e-6, outcome={"weight": 0.5, "turns": 0.5, "of": "turns"}
    )
    released = [
        [1.15223789, 1.096552133, 0.930901946], [-0.622230171, -0.329597028, -0.642227311], [-0.530007719, -0.766955106],
        [0.353546724, -0.353552724], [-0.353546724, 0.353552724],
    ]  # fmt: skip
    same(credit(found, played(PAID, GROUPS), now_of()), released)


def test_a_turn_is_compared_with_the_others_of_its_number_alone_as_trloo_is_released() -> None:
    found = spec(leave_one_out=True, scale="none")
    released = [[1.0, 1.1, 0.7], [-0.5, -0.1, -0.7], [-0.5, -1.0], [0.0, -0.75], [0.0, 0.75]]
    same(credit(found, played(PAID, GROUPS), now_of()), released)


def test_turns_before_which_the_same_was_read_are_compared_as_gigpo_is_released() -> None:
    batch = played(PAID, GROUPS, read=READ)
    step = {"propagation": {"name": "returns", "gamma": 0.95}, "baseline": "state", "scale": "none"}
    released = [
        [0.603083333, 0.675, 0.338333333], [-0.323666667, 0.023333333, -0.361666667], [-0.279416667, -0.675],
        [0.01875, 0.0], [-0.01875, 0.0],
    ]  # fmt: skip
    same(credit(spec(**step), batch, now_of()), released)
    joint = [
        [1.26975, 1.341666667, 1.005], [-0.657, -0.31, -0.695], [-0.61275, -1.008333333], [0.01875, 0.0], [-0.01875, 0.0],
    ]  # fmt: skip
    same(credit(spec(**step, outcome={"scale": "none"}), batch, now_of()), joint)


TURN_GAE = {"propagation": {"name": "gae", "gamma": 0.9, "lam": 0.8}, "baseline": "batch", "std_epsilon": 1e-8}


def test_estimates_over_turns_read_the_critic_where_turns_begin_as_hiper_is_released() -> None:
    batch = valued(VALUES, played(PAID, GROUPS))
    released = [
        [0.513723442, 1.417034458, 0.814466025], [-0.139487822, 0.086644601, -0.539620344], [0.194971511, -1.893706712],
        [0.997267684, -1.55518512], [-0.541312952, 0.645205228],
    ]  # fmt: skip
    same(credit(spec(**TURN_GAE), batch, now_of()), released)
    targets, mask = critic_targets(batch, earned(spec(**TURN_GAE), batch, now_of()), 0.9, 0.8)
    assert mask.nonzero().tolist() == [[row, 3 * t] for row, of_row in enumerate(PAID) for t in range(len(of_row))]
    learnt = [1.12232, 1.256, 1.0, 0.5364, 0.67, 0.3, 0.834, 0.1, 1.108, 0.0, 0.799, 0.75]
    assert targets[mask].tolist() == pytest.approx(learnt, abs=1e-6)


def test_tokens_within_a_turn_are_not_discounted_as_poad_is_released() -> None:
    rows = [[Span(0, 2, 0, 0.2), Span(3, 6, 1, 1.0)], [Span(0, 1, 0, 0.5), Span(2, 4, 1, 0.0)]]
    observed = torch.zeros(2, 6, dtype=torch.bool)
    observed[0, 2] = observed[1, 1] = True
    values = torch.tensor([[0.5, 0.1, 77, 0.2, 0.4, 0.3], [0.6, 77, 0.7, 0.15, 77, 77]])
    batch = batch_of([1.2, 0.5], [0, 0], [6, 4], spans=rows, turns=[[RIGHT] * 2] * 2, observed=observed, values=values)
    found = gae(values.double(), batch, 1.0, 0.8, "turns", gamma_turn=0.9)
    assert found[0, [0, 1, 3, 4, 5]].tolist() == pytest.approx([0.151168, 0.68896, 0.568, 0.46, 0.7], abs=1e-6)
    assert found[1, [0, 2, 3]].tolist() == pytest.approx([0.0476, -0.67, -0.15], abs=1e-6)
    assert gae(values.double(), batch, 0.9, 0.8, "turns")[0, 0] != pytest.approx(0.151168)


def test_siops_rewards_and_advantages_are_those_released() -> None:
    said = [RIGHT._replace(said=text) for text in ("4", "5", "4", "")]
    batch = played([[0, 0]] * 4, [0] * 4, verdicts=said)
    asked = []

    def likelihood(contexts: list[list[int]], texts: list[list[int]]) -> list[float]:
        asked.extend(zip(contexts, texts, strict=True))
        return [-4.0, -2.0, -1.0, -3.0, -3.5, -0.5, -4.0, -4.0, -4.0]

    now = now_of(likelihood=likelihood, encode=lambda text: [ord(c) for c in text])
    own = {"sources": [{"name": "agreement", "mix": 0.5, "template": "={answer}"}], "propagation": {"name": "none"}}
    found = credit(spec(**own, baseline="none", scale="none"), batch, now)
    same(found[:2], [[4 / 3, 1.0], [-0.5 / 3, 1 + 0.5 / 3]])
    same(found[2:], [[0.0, 0.5 * 2 / 3], [0.0, 0.0]])
    assert [len(context) - len(batch.prompts[0]) for context, _ in asked] == [0, 2, 5] * 3, "after the turn, not what it read"
    assert {bytes(text) for _, text in asked} == {b"=4", b"=5"}
    released = [
        [1.689194224, 2.278448023, 1.924895744], [-1.453492705, -0.23570152, -0.274985106], [-0.23570152, -0.903522492],
        [0.0, -1.095442715], [0.0, 0.547721358],
    ]  # fmt: skip
    same(credit(spec(compare="paid", baseline="group", std_epsilon=1e-6), played(PAID, GROUPS), now_of()), released)


def test_mt_grpo_pays_turns_before_the_last_for_what_the_environment_paid_as_released() -> None:
    batch = played([[0.2, 9.0], [0.0, 9.0], [0.6, 9.0], [0.1, 9.0]], [0] * 4, rewards=[1, 0, 0, 1])
    found = spec(sources=[{"name": "environment", "last": False}], propagation={"name": "none"}, outcome={"turns": 0.5})
    released = [[0.818364, 0.865875], [-1.293477, -0.865875], [-0.153207, -0.865875], [0.628319, 0.865875]]
    same(credit(found, batch, now_of()), released, abs=2e-6)


# --- by hand ---


def test_igpo_and_turn_returns_are_shorter_forms() -> None:
    batch = played(PAID, GROUPS, rewards=[1, 0, 1, 0, 1])
    for normalise, baseline in (("per_position", "position"), ("pooled", "group")):
        short = TurnAdvantage(gamma=0.5, normalise=normalise)
        whole = spec(propagation={"name": "returns", "gamma": 0.5}, baseline=baseline)
        assert torch.equal(advantages(short, batch, now_of()), advantages(whole, batch, now_of()))
    now = now_of(
        rows=[SimpleNamespace(answer="4")] * 2, encode=lambda text: [1], likelihood=lambda c, t: [-len(x) % 3.0 for x in c]
    )
    sources = [{"name": "information_gain", "space": "prob"}, {"name": "outcome"}]
    whole = spec(sources=sources, compare="sources", baseline="group", propagation={"name": "returns", "gamma": 0.5})
    assert torch.equal(advantages(GainAdvantage(gamma=0.5, space="prob"), batch, now), advantages(whole, batch, now))


def test_a_gate_pays_what_the_environment_paid_in_episodes_that_reach_the_threshold_alone() -> None:
    batch = played([[0.2, 0.4], [0.5, 0.5], [0.1, 0.1]], [0, 0, 0], rewards=[1.0, 0.0, 1.0])
    gated = {"sources": [{"name": "outcome"}, {"name": "environment", "gate": 1.0}], "propagation": {"name": "broadcast"}}
    # R = R_long + 1[R_long >= 1] sum r: 1.6, 0 and 1.2, less their mean.
    mean = 2.8 / 3
    expected = [[1.6 - mean] * 2, [0 - mean] * 2, [1.2 - mean] * 2]
    same(credit(spec(**gated, baseline="group", scale="none"), batch, now_of()), expected)
    opened = {**gated, "sources": [{"name": "outcome"}, {"name": "environment"}]}
    same(credit(spec(**opened, baseline="none", scale="none"), batch, now_of()), [[1.6] * 2, [1.0] * 2, [1.2] * 2])


def test_feedback_is_worth_what_it_adds_to_the_next_turn_over_a_placeholder_of_its_length() -> None:
    batch = played([[0, 0, 0], [0]], [0, 0], tokens=torch.arange(16).view(2, 8))
    asked = []

    def likelihood(contexts: list[list[int]], texts: list[list[int]]) -> list[float]:
        asked.extend(zip(contexts, texts, strict=True))
        return [-1.0, -3.0, -2.0, -1.5]

    now = now_of(likelihood=likelihood, encode=lambda text: [90, 91])
    found = credit(spec(sources=[{"name": "feedback"}], propagation={"name": "none"}, baseline="none", scale="none"), batch, now)
    assert found == [[2.0, -0.5, 0.0], [0.0]]
    prompt = batch.prompts[0]
    assert asked[0] == ([*prompt, 0, 1, 2], [3, 4])
    assert asked[1] == ([*prompt, 0, 1, 90], [3, 4]), "cut to the length of what was read"
    assert asked[3] == ([*prompt, 0, 1, 2, 3, 4, 90], [6, 7])


def test_calls_are_read_and_compared_by_name_parameters_and_values_as_matchtir_is_released() -> None:
    assert read_call("calc(12-5)") == Called("calc", {"0": "12-5"})
    assert read_call(" look(who=Ada, n=f(1,2)) ") == Called("look", {"who": "Ada", "n": "f(1,2)"})
    assert read_call("go north") == Called("go", {"0": "north"})
    assert read_call(r"\boxed{4}") is read_call(" ") is None
    calls = [Called("calc", {"0": "12-5"}), Called("look", {"who": "Ada", "n": "2"}), Called("calc", {"0": "7*7"})]
    golds = [Called("calc", {"0": "7*7"}), Called("look", {"who": "Ada"}), Called("look", {"who": "Bea"})]
    assert [[similarity(call, gold) for gold in golds] for call in calls] == [
        [pytest.approx(2 / 3), 0, 0], [0, pytest.approx(5 / 6), 0.5], [1, 0, 0],
    ]  # fmt: skip
    assert matched(calls, golds, False, now_of().by) == pytest.approx([0, 5 / 6, 1]), "a gold call is matched once"
    assert matched([], golds, False, now_of().by) == []
    assert matched(calls, [], True, now_of().by) == [0, 0, 0]


def test_turns_are_paid_for_calls_of_the_gold_transcript_and_the_answer_is_not() -> None:
    said = [["calc(12-5)", "calc(1+1)", r"\boxed{8}"], ["hello", "calc(7*7)"]]
    batch = played([[0, 0, 0], [0, 0]], [0, 0], said=said)
    now = now_of(rows=[SimpleNamespace(solution="\x1e".join(["calc(7*7)", "49", "calc(12-5)", "7", r"\boxed{7}"]))])
    own = {"sources": [{"name": "gold_calls"}], "propagation": {"name": "none"}, "baseline": "none", "scale": "none"}
    same(credit(spec(**own), batch, now), [[1, 2 / 3, 0], [0, 1]])
    own["baseline"] = "position"
    assert credit(spec(**own), batch, now)[0][2] == 0.0, "what is not paid is not compared"


def test_soft_matching_transports_equal_masses_to_the_most_similar() -> None:
    table = torch.tensor([[1.0, 0.2, 0.0], [0.1, 0.9, 0.3]], dtype=torch.float64)
    found = transported(table, 0.1, now_of().by)
    assert found.sum(1).tolist() == pytest.approx([0.5, 0.5])
    assert found.sum(0).tolist() == pytest.approx([1 / 3] * 3)
    free = found.log() - table / 0.1  # of an optimal plan a sum of one number a row and one a column
    assert (free - free[:1] - free[:, :1] + free[:1, :1]).abs().max() < 1e-9
    soft = matched([Called("a", {}), Called("b", {})], [Called("b", {}), Called("a", {})], True, now_of().by)
    assert soft == pytest.approx([0.5, 0.5], abs=1e-4)


def test_a_judge_reads_the_episode_up_to_the_turn_that_it_scores() -> None:
    batch = played([[0, 0], [0]], [0, 0], read=[["door\n"], []], said=[["open", "go"], ["stay"]])
    asked = []

    def judge(of: Any, rows: list[Any], texts: list[str]) -> list[float]:
        asked.append((of.model, [row.prompt for row in rows], texts))
        return [0.2, 0.8, 0.5]

    own = {"name": "judge", "judge": {"name": "judge", "model": "m", "rubric": "Score {completion}"}}
    found = spec(sources=[own], propagation={"name": "none"}, baseline="none", scale="none")
    now = now_of(rows=[SimpleNamespace(prompt="p"), SimpleNamespace(prompt="p")], judge=judge)
    assert credit(found, batch, now) == [[0.2, 0.8], [0.5]]
    assert asked == [("m", ["p"] * 3, ["open", "opendoor\ngo", "stay"])]
    assert found.inexact()
    assert not spec().inexact()


def test_sums_of_many_turns_are_rescaled_by_the_square_root_of_their_number() -> None:
    batch = played([[1.0, 1.0, 1.0, 1.0]], [0])
    found = credit(spec(propagation={"name": "returns", "rescale": "sqrt"}, baseline="none", scale="none"), batch, now_of())
    assert found == [pytest.approx([4 / 2, 3 / math.sqrt(3), 2 / math.sqrt(2), 1.0])]


def test_the_largest_difference_scales_a_set_to_one() -> None:
    found = credit(spec(baseline="group", scale="max_abs", propagation={"name": "none"}), played(PAID, GROUPS), now_of())
    for rows in ([0, 1, 2], [3, 4]):
        assert max(abs(value) for row in rows for value in found[row]) == pytest.approx(1.0, abs=1e-3)


def test_seats_are_compared_over_the_batch() -> None:
    batch = played([[1.0], [0.0], [0.5], [0.25]], [0, 1, 2, 3], seats=torch.tensor([0, 1, 0, 1]))
    found = credit(spec(baseline="seat", scale="none"), batch, now_of())
    same(found, [[0.25], [-0.125], [-0.25], [0.125]])


def test_a_product_shares_out_an_episode_without_turning_its_sign() -> None:
    batch = played([[1.0, 0.0], [0.0, 1.0]], [0, 0], rewards=[1.0, 0.0])
    mix = {"mix": "product", "weight": 2.0, "turns": 0.5, "scale": "none"}
    found = credit(spec(outcome=mix, propagation={"name": "none"}, scale="none"), batch, now_of())
    # Episodes 0.5 and -0.5, turns 0.5 and -0.5 each.
    same(found, [[1.25, 0.75], [-1.25, -0.75]])
    steep = spec(outcome={**mix, "turns": 99.0}, propagation={"name": "none"}, scale="none")
    assert credit(steep, batch, now_of())[0][1] == 0.0


EVERY = {
    "baseline": ["position", "group", "state", "batch", "none"],
    "scale": ["deviation", "max_abs", "none"],
    "propagation": [{"name": "returns", "gamma": 0.5}, {"name": "returns", "rescale": "sqrt"}, {"name": "none"}],
    "compare": ["propagated", "paid"],
    "leave_one_out": [False, True],
    "sources": [
        [{"name": "reward"}], [{"name": "environment", "weight": 2.0}], [{"name": "environment", "gate": 1.0}], [{"name": "outcome"}],
    ],
    "outcome": [None, {}, {"mix": "product"}, {"weight": 0.5}, {"scale": "none"}],
}  # fmt: skip


@pytest.mark.parametrize("key", EVERY)
def test_another_choice_gives_another_advantage(key: str) -> None:
    batch = played(PAID, GROUPS, read=READ, rewards=[1.0, 0.5, 0.0, 1.0, 0.0])
    batch = replace(
        batch, spans=[[span._replace(value=span.value + 0.1 * span.position) for span in row] for row in of_turns(batch)]
    )
    base: dict[str, Any] = {"propagation": {"name": "returns", "gamma": 0.9}}
    seen = [str(credit(spec(**{**base, key: value}), batch, now_of())) for value in EVERY[key]]
    assert len(set(seen)) == len(seen), key


@given(st.permutations(range(5)), st.sampled_from(["position", "group", "state", "batch"]), st.booleans())
def test_the_order_of_episodes_does_not_matter_and_what_was_read_has_no_advantage(
    order: list[int], baseline: str, leave: bool
) -> None:
    batch = played(PAID, GROUPS, read=READ)
    found = spec(baseline=baseline, leave_one_out=leave, outcome={})
    plain = advantages(found, batch, now_of())
    moved = advantages(found, take(batch, torch.tensor(order)), now_of())
    torch.testing.assert_close(moved, plain[list(order)], atol=1e-5, rtol=1e-5)
    assert not plain[~batch.mask()].any()
    level = played([[0.5] * len(row) for row in PAID], GROUPS, rewards=[1.0] * 5)
    assert not advantages(spec(baseline=baseline, propagation={"name": "none"}), level, now_of()).any()


def test_rows_that_do_not_count_are_compared_with_those_that_do() -> None:
    batch = played([[1.0], [0.0], [9.0]], [0, 0, 0], excluded=torch.tensor([False, False, True]))
    same(credit(spec(scale="none"), batch, now_of()), [[0.5], [-0.5], [8.5]])


def test_a_row_that_does_not_count_is_not_divided_by_next_to_nothing_where_those_that_do_are_equal() -> None:
    batch = played([[1.0], [1.0], [9.0]], [0, 0, 0], excluded=torch.tensor([False, False, True]))
    for scale in ("deviation", "max_abs"):
        same(credit(spec(scale=scale), batch, now_of()), [[0.0], [0.0], [8.0]])


def test_metrics_say_how_many_turns_have_credit_and_which() -> None:
    batch = played(PAID, GROUPS)
    found = advantages(spec(sources=[{"name": "environment"}], propagation={"name": "none"}, scale="none"), batch, now_of())
    logged = credit_metrics(batch, found)
    assert logged["credit/turns"] == 1.0
    assert [logged[f"credit/mean_{n}"] for n in (1, 2, 3, 4)] == pytest.approx([0.0] * 4, abs=1e-6)
    raw = advantages(spec(baseline="none", scale="none", propagation={"name": "none"}), batch, now_of())
    logged = credit_metrics(batch, raw)
    assert logged["credit/turns"] == pytest.approx(10 / 12)
    assert logged["credit/mean_1"] == pytest.approx(2.05 / 5)
    assert logged["credit/mean_3"] == pytest.approx(1.3 / 2)
    assert credit_metrics(replace(batch, turns=None), raw) == {}


# --- what learns from it ---


def test_a_turn_is_clipped_as_a_whole_by_the_geometric_mean_of_its_ratios() -> None:
    batch = played([[0.0, 0.0]], [0])
    assert numbered_turns(batch).tolist() == [[0, 0, 0, 1, 1]]
    logp = torch.tensor([[0.3, -0.1, 9.0, 0.5, 0.1]], requires_grad=True)
    seen = MicroBatch(
        logp,
        torch.zeros(1, 5),
        torch.tensor([[1.0, 1.0, 0.0, 1.0, 1.0]]),
        batch.mask(),
        prepared={TURN_NUMBERS: numbered_turns(batch)},
    )
    whole = ClippedLoss(importance_sampling_level="turn", epsilon=0.2)
    per_token, sums = token_losses(whole, seen)
    # Means of the log ratios: 0.1 and 0.3, of which the second is above log 1.2.
    first = math.exp(0.1)
    assert per_token[0, [0, 1, 3, 4]].tolist() == pytest.approx([-first, -first, -1.2, -1.2])
    assert float(sums["clip_fraction"]) == 2.0
    (per_token * seen.mask).sum().backward()
    assert logp.grad is not None
    assert logp.grad[0].tolist() == pytest.approx([-first, -first, 0, 0, 0])
    each = token_losses(ClippedLoss(epsilon=0.2), seen)[0].detach()
    assert float(each[0, 0]) == pytest.approx(-1.2), "by tokens the first is clipped"
    assert float(each[0, 4]) == pytest.approx(-math.exp(0.1)), "and the last is not"


def test_a_critic_of_turns_learns_where_turns_begin_alone() -> None:
    judge = critic(ValueHead(learning_rate=0.01, cliprange_value=0.0, gamma=0.9, lam=1.0), toy.decoder(), "float32", 10**6)
    assert judge is not None
    batch = played(
        [[0.0, 1.0], [0.5, 0.0]] * 4, [0] * 8, tokens=torch.randint(2, 9, (8, 5), generator=torch.Generator().manual_seed(0))
    )
    found = spec(propagation={"name": "gae", "gamma": 0.9, "lam": 1.0}, baseline="none", scale="none")
    for _ in range(40):
        batch = replace(batch, values=judge.values(batch))
        targets = critic_targets(batch, earned(found, batch, now_of()), 0.9, 1.0)
        logged = judge.learn(batch, targets=targets)
    values = replace(batch, values=judge.values(batch))
    starts = [credit(found, values, now_of())[row] for row in (0, 1)]
    assert all(abs(gain) < 0.35 for row in starts for gain in row), "returns 0.9 and 1, 0.5 and 0, are what it says"
    assert logged["critic/explained_variance"] > 0.5
    assert targets[0][targets[1]].tolist() == pytest.approx([0.9, 1.0, 0.5, 0.0] * 4, abs=1e-5), "Monte Carlo at lam 1"


# --- what is refused before anything runs ---

TURNS = {"paper": "p", "episode": {"name": "environment"}}
PAIR = {"paper": "p", "allocation": {"name": "fixed", "num_generations": 1}, "episode": {"name": "environment"}}


@pytest.mark.parametrize(
    ("method", "message"),
    [
        ({"paper": "p", "advantage": {"name": "turns"}}, "turns needs a member that has several turns"),
        ({**PAIR, "advantage": {"name": "turns"}}, "turns does not go with method.allocation = fixed"),
        (
            {"paper": "p", "episode": {"name": "retry"}, "advantage": {"name": "turns", "sources": [{"name": "environment"}]}},
            "turns needs a member that has turns that an environment can pay; write method.episode = environment",
        ),
        (
            {"paper": "p", "episode": {"name": "retry"}, "advantage": {"name": "turns", "sources": [{"name": "gold_calls"}]}},
            "turns needs a member that has turns that an environment can pay",
        ),
        (
            {**TURNS, "advantage": {"name": "turns", "propagation": {"name": "gae"}, "baseline": "none"}},
            "turns needs a member that estimates the value of each token; write method.critic = value_head",
        ),
        ({**TURNS, "advantage": {"name": "turns"}, "critic": {"name": "value_head"}}, "value_head needs a member that reads the"),
        ({**TURNS, "advantage": {"name": "turns", "baseline": "seat"}}, "turns needs a member that plays the seats of a game"),
        (
            {**TURNS, "advantage": {"name": "turns"}, "loss": {"name": "clipped", "importance_sampling_level": "sequence"}},
            "turns does not go with method.loss = clipped",
        ),
        (
            {
                "paper": "p", "episode": {"name": "environment", "window": 1},
                "advantage": {"name": "turns", "sources": [{"name": "feedback"}]},
            },
            "turns does not go with method.episode = environment, which reads a window of its turns",
        ),
        (
            {"paper": "p", "loss": {"name": "clipped", "importance_sampling_level": "turn"}},
            "clipped needs a member that has several turns",
        ),
        (
            {**TURNS, "advantage": {"name": "turns"}, "loss": {"name": "sapo", "importance_sampling_level": "turn"}},
            "importance_sampling_level = turn: is of the loss clipped alone",
        ),
        (
            {"paper": "p", "advantage": {"name": "gae", "gamma_turn": 0.9}, "critic": {"name": "value_head"}},
            "gae needs a member that has several turns",
        ),
    ],
)  # fmt: skip
def test_what_an_episode_or_a_critic_does_not_give_is_refused(method: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        RLSpec.model_validate({"method": method, "mix": [1.0], "steps": 1})


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"sources": [{"name": "reward"}, {"name": "reward"}]}, "reward is there twice"),
        ({"propagation": {"name": "broadcast"}}, "broadcast compares episodes"),
        ({"propagation": {"name": "gae"}}, "gae compares with the critic"),
        ({"baseline": "none", "leave_one_out": True}, "no mean to leave a turn out of"),
        ({"compare": "paid", "outcome": {"of": "turns"}}, "write compare: propagated"),
        ({"sources": [{"name": "information_gain", "template": "x"}]}, "must hold {answer} once"),
        ({"sources": []}, "at least 1 item"),
    ],
)
def test_choices_that_contradict_each_other_are_refused(keys: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        spec(**keys)
