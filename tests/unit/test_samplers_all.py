"""What holds for every sampler: states resume to the same choices, calls get what they ask for, rewards count where they should."""

import json
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from conftest import examples
from hypothesis import given, strategies as st
from pydantic import TypeAdapter, ValidationError
from sampler_cases import deck, made, outcome, rates

from interplay.rl import sampler_spec as samplers_spec
from interplay.rl.sampler import Sampler
from interplay.rl.spec import RLSpec

EVERY: dict[str, dict[str, Any]] = {
    "uniform": {},
    "easy_to_hard": {},
    "hard_first": {"by": "pass_rate", "pacing": "step"},
    "edge_of_competence": {"candidates": 2},
    "single_stream": {},
    "retain_hardest": {},
    "phases": {"bounds": [0.5, 1.0], "unit": "share"},
    "learned_mixture": {"temperature": 0.2},
    "ada_rft": {},
}
ADAPTIVE = ["hard_first", "edge_of_competence", "single_stream", "retain_hardest", "phases", "learned_mixture"]


def walk(draws: Sampler, calls: Sequence[tuple[int, int]], rewards: dict[int, int]) -> list[list[int]]:
    """Selections of a run that asks for m prompts at a step, for each (m, step); prompt i passes rewards[i] of 4 times."""
    seen = []
    for m, step in calls:
        ids = draws.select(m, step)
        draws.observe(step, [outcome(i, *[float(k < rewards[i]) for k in range(4)]) for i in ids])
        seen.append(ids)
    return seen


@st.composite
def runs(draw: Any) -> tuple[list[tuple[int, int]], int, dict[int, int]]:
    """Calls of a run of ten steps, some steps with several; where to stop; how often each of 20 prompts passes."""
    steps = draw(st.lists(st.integers(1, 10), min_size=2, max_size=8))
    calls = [(draw(st.integers(1, 9)), step) for step in sorted(steps)]
    return calls, draw(st.integers(0, len(calls))), {i: draw(st.integers(0, 4)) for i in range(20)}


@pytest.mark.parametrize("name", EVERY)
@examples(25)
@given(run=runs(), seed=st.integers(0, 3))
def test_a_saved_state_resumes_to_the_same_choices(name: str, run: Any, seed: int) -> None:
    calls, stop, rewards = run
    two_sets = deck([12, 8], [0.6, 0.4], seed)
    whole = walk(made(name, two_sets, **EVERY[name]), calls, rewards)
    first = made(name, two_sets, **EVERY[name])
    walk(first, calls[:stop], rewards)
    state, tensors = json.loads(json.dumps(first.state_dict())), {k: v.clone() for k, v in first.tensors().items()}
    walk(first, calls, rewards)  # what goes on elsewhere leaves what was saved alone
    second = made(name, two_sets, **EVERY[name])
    second.load_state_dict(state, tensors)
    assert walk(second, calls[stop:], rewards) == whole[stop:]


@pytest.mark.parametrize("name", EVERY)
@examples(25)
@given(run=runs(), seed=st.integers(0, 3))
def test_every_call_gets_as_many_ids_as_it_asked_for_and_none_of_a_set_without_a_share(name: str, run: Any, seed: int) -> None:
    calls, _, rewards = run
    for (m, _), ids in zip(calls, walk(made(name, deck([12, 8], [1.0, 0.0], seed), **EVERY[name]), calls, rewards), strict=True):
        assert len(ids) == m
        assert all(type(i) is int and 0 <= i < 12 for i in ids)


@pytest.mark.parametrize("name", [name for name in EVERY if name not in ("uniform", "learned_mixture")])
def test_a_step_repeats_no_prompt_before_it_has_run_out(name: str) -> None:
    options = {**EVERY[name], **({"start": 1.0} if name in ("easy_to_hard", "hard_first") else {})}
    drawn = 6 if name == "phases" else 12
    draws = made(name, deck(steps=400), **options)
    ids = [i for m in (3, 2, drawn - 5) for i in draws.select(m, 1)]
    assert len(set(ids)) == drawn
    again = draws.select(2 * drawn, 1)
    assert Counter(again) == {i: 2 for i in ids}, "then round again, each as often"


@pytest.mark.parametrize("name", EVERY)
def test_calls_of_one_step_differ_and_so_do_seeds(name: str) -> None:
    options = {**EVERY[name], "start": 1.0} if name in ("easy_to_hard", "hard_first") else EVERY[name]
    draws, other = (made(name, deck([300], seed=seed), **options) for seed in (0, 1))
    first, second = draws.select(8, 1), draws.select(8, 1)
    assert first != second
    assert other.select(8, 1) != first


@pytest.mark.parametrize("name", EVERY)
def test_shuffled_rewards_change_the_choices_of_adaptive_samplers_only(name: str) -> None:
    calls = [(4, step) for step in range(1, 11)]
    honest = {i: 0 if i < 10 else 4 if i < 15 else 2 for i in range(20)}
    order = np.random.Generator(np.random.PCG64(3)).permutation(20)
    shuffled = {i: honest[int(order[i])] for i in range(20)}
    one, other = (walk(made(name, deck([12, 8], [0.6, 0.4]), **EVERY[name]), calls, rewards) for rewards in (honest, shuffled))
    assert (one != other) == (name in ADAPTIVE)


def test_only_members_that_learn_read_offline_samples() -> None:
    specs = {
        name: TypeAdapter(samplers_spec.Sampler).validate_python({"name": name, **options}) for name, options in EVERY.items()
    }
    assert {name for name, spec in specs.items() if samplers_spec.reads_offline(spec)} == set(ADAPTIVE) - {"learned_mixture"}


@pytest.mark.parametrize("name", [name for name in ADAPTIVE if name != "learned_mixture"])
def test_offline_samples_count_as_a_history(name: str) -> None:
    calls, rewards = [(3, 6), (3, 10)], dict.fromkeys(range(12), 2)
    history = rates(0, 0, 0, 8, 8, 8, 4, 4, 4, 8, 0, 4)
    told = deck(offline=history)
    assert walk(made(name, told, **EVERY[name]), calls, rewards) != walk(made(name, **EVERY[name]), calls, rewards)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"name": "easy_to_hard", "by": "band"}, "by: band needs bands"),
        ({"name": "easy_to_hard", "bands": ["a", "b"]}, "by: band needs bands"),
        ({"name": "hard_first", "by": "band", "bands": ["a", "a"]}, "each once"),
        ({"name": "easy_to_hard", "until": 0.0}, "greater than 0"),
        ({"name": "edge_of_competence", "band": [0.8, 0.2]}, "lowest, highest"),
        ({"name": "single_stream", "rho": 0.5}, "greater than or equal to 0.875"),
        ({"name": "retain_hardest", "schedule": [{"steps": 1, "keep": 0.2}, {"steps": 1, "keep": 0.3}]}, "cannot rise"),
        ({"name": "phases", "bounds": [5, 5]}, "bounds must rise"),
        ({"name": "phases", "bounds": [0.5, 2.0], "unit": "share"}, "end at 1 at most"),
        ({"name": "phases", "lengths": [1.0]}, "one number per bound, 2, not 1"),
        ({"name": "learned_mixture", "alpha": 0.0}, "greater than 0"),
    ],
)
def test_options_that_make_no_sense_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        TypeAdapter(samplers_spec.Sampler).validate_python(options)


def test_a_mixture_that_is_learned_over_sets_takes_no_shares() -> None:
    values = {"steps": 1, "method": {"paper": "p", "sampler": {"name": "learned_mixture", "by": "set"}}}
    with pytest.raises(ValidationError, match="equal shares"):
        RLSpec.model_validate({**values, "mix": [0.75, 0.25]})
    RLSpec.model_validate({**values, "mix": [0.5, 0.5]})
