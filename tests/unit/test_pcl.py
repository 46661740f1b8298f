"""Prompt curriculum learning: which prompts it takes, what its value model learns, and that both go on from a saved state."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from interplay.model import folder
from interplay.model.heads import ValueHead
from interplay.model.spec import Shape
from interplay.rl.sampler import Outcome, PromptSource
from interplay.rl.sampler_spec import BetaValue, ModelValue, PclSampler
from interplay.rl.samplers import NetworkValue, Pcl, build_sampler

SHAPE = Shape(hidden_size=16, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1, head_dim=8, intermediate_size=24)


def prompts(ids: Sequence[int]) -> list[list[int]]:
    """Prompts of 2 to 4 tokens; the last token of every other one is 7."""
    return [[*range(1, 2 + i % 3), 7 if i % 2 else 5] for i in ids]


def deck(size: int = 40, **more: Any) -> PromptSource:
    policy = folder.init_decoder(SHAPE, 9, seed=3)
    values: dict[str, Any] = {"sizes": [size], "mix": [1.0], "seed": 4, "policy": policy, "encode": prompts}
    return PromptSource(**{**values, **more})


class Known:
    """A value that is given, and remembers what it was taught."""

    def __init__(self, values: list[float]) -> None:
        self.values, self.taught = np.array(values), []

    def predict(self, ids: Sequence[int]) -> np.ndarray:
        return self.values[list(ids)]

    def learn(self, outcomes: Sequence[Outcome]) -> None:
        self.taught.append([outcome.id for outcome in outcomes])

    def tensors(self) -> dict[str, Tensor]:
        return {}

    def load(self, tensors: dict[str, Tensor]) -> None:
        pass


def with_values(values: list[float], **options: Any) -> tuple[Pcl, Known]:
    draws = Pcl(PclSampler(value=BetaValue(), **options), deck(len(values)))
    draws.value = known = Known(values)
    return draws, known


def outcome(i: int, *rewards: float) -> Outcome:
    return Outcome(i, rewards, sum(reward == 1 for reward in rewards), 0)


def test_of_all_candidates_those_nearest_to_tau_are_taken() -> None:
    values = [0.0, 0.45, 0.9, 0.52, 1.0, 0.3, 0.7, 0.1]
    draws, _ = with_values(values, candidates=4)
    assert draws.select(2, 1) == [3, 1]  # all eight are candidates
    draws, _ = with_values(values, candidates=4, tau=0.95)
    assert sorted(draws.select(2, 1)) == [2, 4]


def test_only_k_times_m_prompts_are_candidates_and_all_come_up_once_an_epoch() -> None:
    draws, known = with_values([0.5] * 4 + [1.0] * 36, candidates=2)
    seen: list[int] = []
    for step in range(1, 11):
        chosen = draws.select(2, step)
        seen += list(draws.predicted)
        assert len(draws.predicted) == 4
        assert set(chosen) <= set(draws.predicted)
        wanted = [i for i in draws.predicted if known.values[i] == 0.5]
        assert set(wanted[:2]) <= set(chosen)
        draws.observe(step, [outcome(i, 1.0, 0.0) for i in chosen])
        draws.learn(step)
    assert sorted(seen) == list(range(40))


def test_a_step_that_measured_no_prompt_teaches_nothing_and_logs_numbers() -> None:
    draws, known = with_values([0.25] * 8)
    draws.select(2, 1)
    draws.observe(1, [])
    draws.learn(1)
    assert draws.metrics() == {"value": 0.25, "error": 0.0, "explained_variance": 0.0}
    assert not known.taught


def test_v_is_known_of_prompts_that_it_did_not_choose() -> None:
    draws, _ = with_values([0.1, 0.2, 0.3, 0.4])
    assert draws.expected([2, 1]).tolist() == [0.3, 0.2]
    draws.learn(1)
    assert draws.metrics()["value"] == pytest.approx(0.25)


def test_no_prompt_is_taken_twice_unless_there_are_too_few() -> None:
    draws, _ = with_values([0.5, 0.4, 0.9], candidates=4)
    assert draws.select(3, 1) == [0, 1, 2]
    assert draws.select(5, 2) == [0, 1, 2, 0, 1]


def test_v_lags_the_policy_by_one_step() -> None:
    draws, known = with_values([0.5] * 8, candidates=1)
    first = draws.select(2, 1)
    draws.observe(1, [outcome(i, 1.0) for i in first])
    again = draws.select(2, 1)  # dynamic sampling draws further prompts
    draws.observe(1, [outcome(i, 0.0) for i in again])
    assert known.taught == []
    draws.learn(1)
    assert known.taught == [first + again]


def test_what_is_logged_is_the_error_of_what_was_foretold() -> None:
    draws, _ = with_values([0.4, 0.5, 0.6, 5.0], candidates=1)
    draws.pool.select(4, 0)  # an epoch: the next four are all prompts again
    chosen = [i for i in draws.select(4, 1) if i != 3]
    rewards = {0: (0.0, 1.0), 1: (0.0, 0.0), 2: (1.0, 1.0)}
    draws.observe(1, [outcome(i, *rewards[i]) for i in chosen])
    draws.learn(1)
    errors = np.array([0.1, -0.5, 0.4])
    assert draws.metrics() == pytest.approx(
        {
            "value": 6.5 / 4,
            "error": np.sqrt((errors**2).mean()),
            "explained_variance": 1 - errors.var() / np.var([0.5, 0.0, 1.0]),
        }
    )


# --- the value model ---


def test_it_starts_as_the_policy_and_holds_every_prompt_for_just_right() -> None:
    at = deck()
    network = NetworkValue(ModelValue(), at, start=0.5).network
    for name, parameter in at.policy.named_parameters():
        assert torch.equal(dict(network.decoder.named_parameters())[name], parameter)
    assert NetworkValue(ModelValue(), at, start=0.5).predict([0, 1, 2]).tolist() == [0.5, 0.5, 0.5]


def test_the_head_reads_the_last_token_of_each_prompt_alone() -> None:
    value = NetworkValue(ModelValue(), deck(), start=0.1)
    network = value.network
    torch.nn.init.normal_(network.head.weight, generator=torch.Generator().manual_seed(0))
    together = torch.from_numpy(value.predict(range(6))).float()
    for i in range(6):
        ids = torch.tensor(prompts([i]))
        state = network.decoder.hidden(ids, torch.arange(ids.shape[1])[None])[0, -1]
        torch.testing.assert_close(together[i], 0.1 + state @ network.head.weight[0], atol=1e-5, rtol=1e-5)


def test_one_step_is_one_step_of_adamw_on_the_squared_error_of_mean_rewards() -> None:
    at, outcomes = deck(), [outcome(0, 1.0, 0.0), outcome(1, 1.0, 1.0), outcome(5, 0.0, 0.0)]
    value = NetworkValue(ModelValue(learning_rate=0.01), at, start=0.5)
    twin = ValueHead(at.policy, start=0.5)
    ids = [torch.tensor([prompt]) for prompt in prompts([0, 1, 5])]
    last = torch.stack([twin.decoder.hidden(each, torch.arange(each.shape[1])[None])[0, -1] for each in ids])
    loss = ((twin(last) - torch.tensor([0.5, 1.0, 0.0])) ** 2).mean()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(twin.parameters(), value.options.max_grad_norm)
    torch.optim.AdamW(twin.parameters(), lr=0.01, betas=(0.9, 0.95), weight_decay=0.0).step()
    value.learn(outcomes)
    for name, parameter in twin.named_parameters():
        torch.testing.assert_close(dict(value.network.named_parameters())[name], parameter, atol=1e-6, rtol=1e-4)


def test_the_step_does_not_depend_on_how_it_is_cut() -> None:
    outcomes = [outcome(i, float(i % 2), 0.0) for i in range(8)]
    whole, pieces = (NetworkValue(ModelValue(), deck(micro_batch_tokens=tokens), 0.5) for tokens in (10**6, 5))
    for value in (whole, pieces):
        for _ in range(2):
            value.learn(outcomes)
    assert whole.predict(range(8)) == pytest.approx(pieces.predict(range(8)), abs=1e-5)


def test_it_learns_to_tell_prompts_apart_and_the_policy_does_not_move() -> None:
    at = deck()
    before = torch.nn.utils.parameters_to_vector(at.policy.parameters()).detach().clone()
    draws = build_sampler(PclSampler(candidates=1, value=ModelValue(learning_rate=3e-3)), at)
    explained = []
    for step in range(1, 31):
        chosen = draws.select(8, step)
        draws.observe(step, [outcome(i, *([1.0, 1.0] if i % 2 else [0.0, 0.0])) for i in chosen])
        draws.learn(step)
        explained.append(draws.metrics()["explained_variance"])
    assert explained[0] == pytest.approx(0)
    assert explained[-1] > 0.9
    assert torch.equal(torch.nn.utils.parameters_to_vector(at.policy.parameters()), before)
    assert draws.value.predict([1, 3, 5]) == pytest.approx([1.0] * 3, abs=0.2)
    assert draws.value.predict([0, 2, 4]) == pytest.approx([0.0] * 3, abs=0.2)


def test_the_tracker_prefers_prompts_that_pass_half_the_time() -> None:
    draws = build_sampler(PclSampler(value=BetaValue(rho=1.0)), deck(8))
    history = dict(enumerate([(0.0, 0.0), (1.0, 1.0), (1.0, 0.0), (0.0, 0.0), (1.0, 1.0), (0.0, 1.0), (1.0, 1.0), (0.0,) * 9]))
    draws.predicted = dict.fromkeys(history, 0.5)
    draws.observe(1, [outcome(i, *rewards) for i, rewards in history.items()])
    draws.learn(1)
    assert draws.value.predict(range(8)) == pytest.approx([(0.5 + sum(r)) / (1 + len(r)) for r in history.values()])
    assert set(draws.select(2, 2)) == {2, 5}


@pytest.mark.parametrize("value", [ModelValue(learning_rate=0.01), BetaValue()], ids=["model", "beta"])
def test_it_goes_on_from_its_state_to_the_same_choices_and_the_same_value(value: ModelValue | BetaValue) -> None:
    spec = PclSampler(candidates=2, value=value)

    def steps(draws: Pcl, numbers: range) -> list[Any]:
        seen = []
        for step in numbers:
            chosen = draws.select(4, step)
            draws.observe(step, [outcome(i, float(i % 2), float((i + step) % 3 == 0)) for i in chosen])
            draws.learn(step)
            seen.append((chosen, draws.metrics()))
        return seen

    whole, first = Pcl(spec, deck()), Pcl(spec, deck())
    expected = steps(whole, range(1, 13))
    steps(first, range(1, 6))
    state, tensors = first.state_dict(), {name: tensor.detach().clone() for name, tensor in first.tensors().items()}
    elsewhere = folder.init_decoder(SHAPE, 9, seed=8)  # a policy that has moved on
    second = Pcl(spec, deck(policy=elsewhere))
    second.load_state_dict(state, tensors)
    assert steps(second, range(6, 13)) == expected[5:]
    assert [chosen for chosen, _ in expected] != [list(range(4))] * 12
