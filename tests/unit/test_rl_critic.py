"""The critic: advantages from its values, what it learns, and the loop with it, also after a kill."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import test_rl_update as toy
import torch
import world
from comma_runs import HOW, spec_of
from conftest import examples
from hypothesis import given, strategies as st
from killed_rl import payload, run_killed
from rl_cases import batch_of, now_of

from interplay.core.metrics import read
from interplay.kernels import exact
from interplay.rl import loop
from interplay.rl.advantage_spec import GaeAdvantage, ValueHead
from interplay.rl.advantages import Critic, by_critic, gae, value_loss
from interplay.rl.group_advantages import earned
from interplay.rl.request_spec import FixedAllocation
from interplay.rl.spec import Method, RLSpec

VALUES = torch.tensor([[0.5, 0.25, 0.0], [0.2, 0.4, 0.6]])

# -- by hand ---------------------------------------------------------------------------------------------------------------------


def test_advantages_are_discounted_sums_of_what_the_critic_did_not_foresee() -> None:
    """Row 0 ends after two tokens with 1: d = -0.25, 0.75, A = d0 + 0.9 * 0.5 d1, d1. Row 1 ends with 0 behind three."""
    batch = batch_of([1.0, 0.0], [0, 1], [2, 3])
    found = gae(VALUES.double(), batch, gamma=0.9, lam=0.5)
    last = -0.6
    middle = 0.9 * 0.6 - 0.4 + 0.45 * last
    first = 0.9 * 0.4 - 0.2 + 0.45 * middle
    torch.testing.assert_close(found[0], torch.tensor([0.9 * 0.25 - 0.5 + 0.45 * 0.75, 0.75, 0.0], dtype=torch.float64))
    torch.testing.assert_close(found[1], torch.tensor([first, middle, last], dtype=torch.float64), atol=1e-6, rtol=1e-6)


def test_a_row_that_goes_on_is_worth_at_its_end_what_it_was_worth_before() -> None:
    batch = batch_of([1.0, 1.0], [0, 1], [2, 3], unfinished=torch.tensor([False, True]))
    found = gae(VALUES.double(), batch, gamma=1.0, lam=1.0)
    torch.testing.assert_close(found[1], torch.tensor([0.4, 0.2, 0.0], dtype=torch.float64), atol=1e-6, rtol=1e-6)


def test_a_row_that_goes_on_earns_the_terms_of_all_its_tokens() -> None:
    terms = torch.tensor([[-0.1, -0.2, 0.0], [-0.1, -0.2, -0.3]], dtype=torch.float64)
    batch = batch_of([0.7, 0.4], [0, 1], [2, 3], unfinished=torch.tensor([False, True]), shaped=terms)
    expected = torch.tensor([[-0.1, 0.8, 0.0], [-0.1, -0.2, -0.3]], dtype=torch.float64)
    torch.testing.assert_close(earned(batch, exact.FAST), expected)


def test_tokens_are_whitened_over_the_batch_alone() -> None:
    batch = batch_of([1.0, 0.0], [0, 1], [2, 3], values=VALUES)
    found = by_critic(GaeAdvantage(), batch, now_of())
    kept = found[batch.mask()].double()
    assert abs(float(kept.mean())) < 1e-6
    assert float(kept.std()) == pytest.approx(1.0, abs=1e-6)
    assert found[0, 2] == 0


@examples(50)
@given(
    rewards=st.lists(st.floats(-2, 2), min_size=1, max_size=4),
    gamma=st.floats(0, 1),
    lam=st.floats(0, 1),
    seed=st.integers(0, 9),
)
def test_they_are_the_sum_of_their_definition(rewards: list[float], gamma: float, lam: float, seed: int) -> None:
    g = torch.Generator().manual_seed(seed)
    lengths = torch.randint(1, 6, (len(rewards),), generator=g).tolist()
    batch = batch_of(rewards, list(range(len(rewards))), lengths)
    values = torch.rand(batch.tokens.shape, generator=g, dtype=torch.float64)
    found = gae(values, batch, gamma, lam)
    for row, length in enumerate(lengths):
        v = [*values[row, :length].tolist(), 0.0]
        delta = [(rewards[row] if t == length - 1 else 0.0) + gamma * v[t + 1] - v[t] for t in range(length)]
        wanted = [sum((gamma * lam) ** (k - t) * delta[k] for k in range(t, length)) for t in range(length)]
        torch.testing.assert_close(found[row, :length], torch.tensor(wanted, dtype=torch.float64))


def test_a_value_is_not_pulled_further_once_it_has_moved_by_the_limit() -> None:
    values = torch.tensor([0.5, 0.9, 0.1], requires_grad=True)
    loss = value_loss(values, torch.tensor([0.5, 0.5, 0.5]), torch.tensor([1.0, 1.0, 1.0]), 0.2)
    torch.testing.assert_close(loss, torch.tensor([0.125, 0.5 * 0.3**2, 0.5 * 0.9**2]))
    loss.sum().backward()
    torch.testing.assert_close(values.grad, torch.tensor([-0.5, 0.0, -0.9]))
    assert torch.equal(value_loss(values, values + 9, torch.ones(3), 0.0), 0.5 * (values - 1) ** 2)


# -- what it learns --------------------------------------------------------------------------------------------------------------


def learner(**more: Any) -> Critic:
    return Critic(ValueHead(**more), toy.decoder(), torch.float32, 10**6)


def valued(critic: Critic) -> Any:
    batch = toy.batch_of(toy.REWARDS)
    return replace(batch, values=critic.values(batch))


def test_it_begins_with_nothing_and_comes_to_foretell_what_it_sees() -> None:
    critic = learner(learning_rate=1e-2, lam=1.0, cliprange_value=0.0)
    first = valued(critic)
    assert not first.values.any()
    told = [critic.learn(valued(critic)) for _ in range(60)]
    assert told[-1]["critic/loss"] < 0.2 * told[0]["critic/loss"]
    assert told[-1]["critic/explained_variance"] > 0.5 > told[0]["critic/explained_variance"]


def test_without_a_rate_it_learns_nothing() -> None:
    critic = learner(learning_rate=0.0)
    told = [critic.learn(valued(critic)) for _ in range(5)]
    assert told[0]["critic/loss"] == told[-1]["critic/loss"]
    assert not valued(critic).values.any()


def test_the_cut_into_micro_batches_does_not_matter() -> None:
    found = []
    for tokens in (10**6, 40):
        critic = Critic(ValueHead(learning_rate=1e-2), toy.decoder(), torch.float32, tokens)
        critic.learn(valued(critic))
        found.append(valued(critic).values)
    torch.testing.assert_close(*found, atol=1e-5, rtol=1e-4)


# -- in the loop -----------------------------------------------------------------------------------------------------------------


def run_of(steps: int, **critic: Any) -> RLSpec:
    asked = {"allocation": FixedAllocation(num_generations=1), "advantage": GaeAdvantage()}
    return spec_of(steps, prompts=24, **asked, critic=ValueHead(learning_rate=2e-3, **critic))


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    results = tmp_path_factory.mktemp("results")
    return {"init": world.model(results, "m" * 12), "data.0": world.problem_set(results, "a" * 12, 40)}


def test_with_a_critic_one_completion_a_prompt_is_enough_to_learn(inputs: dict[str, Path], tmp_path: Path) -> None:
    record = loop.train_policy(run_of(20), inputs, tmp_path, HOW)
    assert record["reward_last"] > 2 * record["reward_first"]
    assert read(tmp_path)[-1]["critic/value"] > read(tmp_path)[0]["critic/value"] == 0.0


def test_while_the_critic_warms_up_the_policy_stands_still(inputs: dict[str, Path], tmp_path: Path) -> None:
    loop.train_policy(run_of(3, warmup_steps=2), inputs, tmp_path, HOW)
    lines = read(tmp_path)
    assert [line["optimizer_steps"] for line in lines] == [0.0, 0.0, 1.0]
    assert lines[1]["critic/value"] != lines[0]["critic/value"]


@pytest.mark.slow
def test_a_killed_run_ends_with_the_bytes_of_one_that_was_not(inputs: dict[str, Path], tmp_path: Path) -> None:
    spec = run_of(30)
    loop.train_policy(spec, inputs, tmp_path / "whole", HOW)
    run_killed(spec, inputs, tmp_path / "killed", HOW, [(3, 0.0), (9, 0.0)])
    assert payload(tmp_path / "killed") == payload(tmp_path / "whole")


def test_one_that_was_saved_and_loaded_learns_on_as_if_nothing_had_been() -> None:
    first, second = learner(learning_rate=1e-2), learner(learning_rate=1e-2)
    first.learn(valued(first))
    second.load({name: tensor.clone() for name, tensor in first.tensors().items()})
    for critic in (first, second):
        critic.learn(valued(critic))
    assert torch.equal(valued(first).values, valued(second).values)


@pytest.mark.parametrize(
    ("method", "says"),
    [
        ({"advantage": GaeAdvantage()}, "method.advantage = gae needs .*; write method.critic = value_head"),
        ({"critic": ValueHead()}, "method.critic = value_head needs .*; write method.advantage = gae"),
    ],
)
def test_a_critic_and_an_advantage_that_reads_it_need_each_other(method: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        RLSpec(method=Method(paper="test", **method), mix=[1.0], steps=1)
