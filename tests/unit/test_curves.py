"""Curves over a run: their values by hand, one form each, what they refuse, and that a step's value reaches the loss, the engine,
the rewards and the episode."""

from pathlib import Path
from typing import Any

import pytest
import torch
from pydantic import ValidationError
from test_rl_loop import HOW, inputs as inputs, spec_of

from interplay.core.digest import canonical, digest
from interplay.core.metrics import read
from interplay.core.model import Curve, at_progress, curves_in, progress_at
from interplay.evaluate.spec import EvaluateSpec
from interplay.kinds import memory
from interplay.rl import draw, loop
from interplay.rl.spec import RLSpec
from interplay.rl.teach_spec import TeachSpec

MEMBER: dict[str, Any] = {"paper": "p"}


def rl(method: dict[str, Any] | None = None, **more: Any) -> RLSpec:
    return RLSpec(**{"method": {**MEMBER, **(method or {})}, "mix": [1.0], "steps": 5, **more})


@pytest.mark.parametrize(
    ("written", "values"),
    [
        ({"linear": [1.0, 0.0]}, [1.0, 0.75, 0.5, 0.25, 0.0]),
        ({"linear": [0.0, 1.0, 0.5]}, [0.0, 0.5, 1.0, 0.75, 0.5]),
        ({"cosine": [1.0, 0.0]}, [1.0, 0.5 + 2**-1.5, 0.5, 0.5 - 2**-1.5, 0.0]),
        ({"steps": [2, 4, 8]}, [2, 2, 4, 8, 8]),
        ({"points": [[0.25, 4.0], [0.75, 0.0]]}, [4.0, 4.0, 2.0, 0.0, 0.0]),
        ({"points": [[0.0, 4.0], [0.5, 1.0]], "shape": "steps"}, [4.0, 4.0, 1.0, 1.0, 1.0]),
    ],
)
def test_a_curve_has_these_values(written: dict[str, Any], values: list[float]) -> None:
    made = Curve.model_validate(written)
    assert [made.at(progress_at(step, 5)) for step in range(1, 6)] == pytest.approx(values, abs=1e-12)


def test_phases_are_of_equal_length_whatever_the_number_of_steps() -> None:
    for steps in range(2, 200):
        places = [progress_at(step, steps) for step in range(1, steps + 1)]
        assert [Curve.phases([3, 2, 0]).at(at) for at in places] == [[3, 2, 0][min(int(at * 3), 2)] for at in places]


def test_a_run_of_one_step_has_the_first_value() -> None:
    assert Curve.through([1.0, 0.0]).at(progress_at(1, 1)) == 1.0


def test_a_curve_that_never_changes_is_the_number() -> None:
    plain, constant = (
        rl({"loss": {"name": "clipped", "beta": 0.04}}),
        rl({"loss": {"name": "clipped", "beta": {"linear": [0.04, 0.04]}}}),
    )
    assert constant.method.loss.beta == 0.04
    assert digest("rl", plain, {}) == digest("rl", constant, {})


def test_a_curve_has_one_form_and_enters_the_digest() -> None:
    short = rl({"loss": {"name": "clipped", "beta": {"linear": [0.04, 0]}}})
    long = rl({"loss": {"name": "clipped", "beta": {"points": [[0, 0.04], [1, 0.0]]}}})
    other = rl({"loss": {"name": "clipped", "beta": {"cosine": [0.04, 0]}}})
    made = {digest("rl", one, {}) for one in (short, long, other, rl({"loss": {"name": "clipped", "beta": 0.04}}))}
    assert len(made) == 3
    assert digest("rl", short, {}) == digest("rl", long, {})
    assert digest("rl", RLSpec.model_validate(canonical(short)), {}) == digest("rl", short, {})
    assert digest("rl", RLSpec.model_validate(short.model_dump(mode="json")), {}) == digest("rl", short, {})


def test_a_spec_at_a_step_has_numbers_and_is_itself_without_curves() -> None:
    spec = rl(
        {"loss": {"name": "clipped", "beta": {"linear": [0.5, 0]}}, "episode": {"name": "retry", "max_turns": {"linear": [2, 7]}}}
    )
    half = at_progress(spec, 0.5)
    assert (half.method.loss.beta, half.method.episode.max_turns, type(half.method.episode.max_turns)) == (0.25, 5, int)
    assert [place for place, _ in curves_in(spec)] == ["method.episode.max_turns", "method.loss.beta"]
    assert not list(curves_in(half))
    assert at_progress(half, 0.7) is half


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"method": {**MEMBER, "loss": {"name": "clipped", "beta": {"linear": [0.1]}}}}, "linear: must be two values at least"),
        (
            {"method": {**MEMBER, "loss": {"name": "clipped", "beta": {"lin": [0.1, 0]}}}},
            "lin is no curve; write a number, or one of linear",
        ),
        ({"method": {**MEMBER, "loss": {"name": "clipped", "beta": {"linear": [0.1, -1.0]}}}}, "greater than or equal to 0"),
        ({"method": {**MEMBER, "loss": {"name": "clipped", "beta": {"points": [[0.5, 1], [0.5, 2]]}}}}, "progress must rise"),
        ({"method": {**MEMBER, "loss": {"name": "clipped", "beta": {"points": [[0.5, 1], [2, 2]]}}}}, "less than or equal to 1"),
        (
            {"method": {**MEMBER, "loss": {"name": "clipped", "beta": {"points": [[0, 1]], "form": "linear"}}}},
            "'form' is no key of a curve",
        ),
        ({"method": {**MEMBER, "loss": {"name": "clipped", "num_iterations": {"linear": [1, 2]}}}}, "valid integer"),
        ({"method": {**MEMBER, "episode": {"name": "retry", "max_turns": {"steps": [1, 3]}}}}, "greater than or equal to 2"),
        ({"method": {**MEMBER, "episode": {"name": "retry", "max_turns": {"steps": [2, 2.5]}}}}, "integer"),
        (
            {"method": {**MEMBER, "shaping": [{"name": "kl", "kl_coef": {"linear": [1, 2]}, "target_kl": 1.0}]}},
            "target_kl steers",
        ),
        ({"temperature": {"linear": [1.0, 0.0]}}, "temperature = 0"),
        ({"trainer": "trl", "temperature": {"linear": [1.0, 0.5]}}, "temperature: is a curve over the run, and TRL has numbers"),
    ],
)
def test_what_is_no_curve_is_refused(given: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        RLSpec(**{"method": MEMBER, "mix": [1.0], "steps": 5, **given})


def test_an_evaluation_and_a_teacher_take_no_curve() -> None:
    with pytest.raises(ValidationError, match=r"episode\.max_turns: is a curve over a run of RL"):
        EvaluateSpec(episode={"name": "retry", "max_turns": {"steps": [2, 3]}})
    method = {**MEMBER, "sampler": {"name": "uniform"}, "loss": {"name": "clipped", "beta": {"linear": [0.1, 0.0]}}}
    with pytest.raises(ValidationError, match="students and their teacher"):
        TeachSpec(method=method, mix=[1.0], steps=2, task={"name": "op_dag"})


def test_a_longer_run_does_not_go_on_from_a_shorter_one_with_a_curve() -> None:
    assert rl(steps=9).continues(rl(steps=5))
    given = {"temperature": {"linear": [1.0, 0.5]}}
    assert not rl(steps=9, **given).continues(rl(steps=5, **given))
    for seam in ("continuation", "advantage"):
        own = {"method": {**MEMBER, seam: {"name": "own.py:f"}}}
        assert not rl(steps=9, **own).continues(rl(steps=5, **own)), "it may read the progress"


def test_the_cost_counts_the_most_turns() -> None:
    spec = rl({"episode": {"name": "retry", "max_turns": {"steps": [2, 6, 4]}}})
    assert memory.turn_count(canonical(spec)["method"]) == 6


def test_the_value_of_a_step_reaches_loss_engine_and_reward(
    inputs: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beside what is logged: what the loss and the engine were given, read where they read it."""
    from interplay.rl import losses

    losses_of, heats = [], []
    whole, drawn = losses.token_losses, draw.sampling
    monkeypatch.setattr(losses, "token_losses", lambda spec, seen: (losses_of.append(spec.beta), whole(spec, seen))[1])
    monkeypatch.setattr(draw, "sampling", lambda *a: (heats.append(made := drawn(*a)), made)[1])
    method = {"loss": {"name": "clipped", "beta": {"linear": [0.4, 0.0]}, "entropy_coef": {"steps": [0.0, 0.01]}}}
    spec = spec_of(steps=3, method=method, temperature={"linear": [1.0, 0.5]})
    loop.train_policy(spec, inputs, tmp_path, HOW)
    assert sorted(set(losses_of), reverse=True) == pytest.approx([0.4, 0.2, 0.0])
    assert [one.temperature for one in heats] == [1.0, 0.75, 0.5]
    lines = read(tmp_path)
    assert [line["curve/method.loss.beta"] for line in lines] == pytest.approx([0.4, 0.2, 0.0])
    assert [line["curve/method.loss.entropy_coef"] for line in lines] == [0.0, 0.01, 0.01]
    assert all(abs(line["kl_old"]) < 1e-6 for line in lines), "what is learnt is not what was sampled from"


def test_a_run_with_a_curve_is_that_of_its_numbers_step_by_step(inputs: dict[str, Path], tmp_path: Path) -> None:
    """Two steps of two phases: the first is the first step of a run at the first value, to the last bit."""
    both = {
        name: spec_of(steps=2, method={"loss": {"name": "clipped", "beta": beta}})
        for name, beta in {"curve": {"steps": [0.1, 0.9]}, "first": 0.1, "second": 0.9}.items()
    }
    losses = {}
    for name, spec in both.items():
        loop.train_policy(spec, inputs, tmp_path / name, HOW)
        losses[name] = [line["loss"] for line in read(tmp_path / name)]
    assert losses["curve"][0] == losses["first"][0]
    assert losses["curve"][1] != losses["first"][1]
    assert torch.tensor(losses["curve"]).isfinite().all()
