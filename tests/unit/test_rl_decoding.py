"""Decoding: what tokens of rollouts are drawn from, what is remembered for it, and the loop around it."""

import math
from pathlib import Path

import pytest
import torch
import world
from comma_runs import HOW, spec_of
from killed_rl import payload, run_killed
from pydantic import ValidationError
from rl_cases import batch_of, now_of
from test_rollout_engine import decoder, equal, requests, sampling

from interplay.core.execution import Run
from interplay.core.metrics import read
from interplay.optim import distributed
from interplay.rl import assembly, loop
from interplay.rl.batch import Memory
from interplay.rl.draw import SCALE, decode_sampling, update_decoding
from interplay.rl.request_spec import AdaptiveTemperature, FixedAllocation
from interplay.rl.spec import Method, RLSpec
from interplay.rollout.engine import engine
from interplay.rollout.request import Heat, Scale, draw_tokens, heated_logits, scale_of, token_uncertainty

HAPO = AdaptiveTemperature(temperature_tau=0.5)
SOME = Heat(0.05, Scale(math.log(0.7), 1.0, -2.0))


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    results = tmp_path_factory.mktemp("results")
    return {"init": world.model(results, "m" * 12), "data.0": world.problem_set(results, "a" * 12, 40)}


# --- a temperature for each token ---


def test_a_token_has_its_temperature_by_its_entropy_by_hand() -> None:
    """Pivot ln(ln 2): of two even choices h = 0; of four h = ln 2 / 1, its log entropy being ln(2 ln 2); of a sure one -1."""
    scale = Scale(math.log(math.log(2)), 1.0, -2.0)
    even2, even4 = torch.tensor([0.5, 0.5, 0, 0]), torch.full((4,), 0.25)
    skew = torch.tensor([0.7, 0.1, 0.1, 0.1])
    entropy = -(0.7 * math.log(0.7) + 0.3 * math.log(0.1))
    h = token_uncertainty(torch.tensor([math.log(2), math.log(4), entropy, 1e-12]), scale)
    of_skew = math.log(entropy) - math.log(math.log(2))
    assert h.tolist() == pytest.approx([0.0, math.log(2), of_skew, (math.log(1e-8) - math.log(math.log(2))) / 2], abs=1e-6)
    logs = torch.stack([even2.clamp(min=1e-30), even4, skew]).log()
    warm = heated_logits(logs, Heat(0.5, scale)).exp()
    powers = skew ** (1 / (1 + 0.5 * of_skew))
    torch.testing.assert_close(warm, torch.stack([even2, even4, powers / powers.sum()]))
    sure = torch.tensor([[1 - 3e-9, 1e-9, 1e-9, 1e-9]], dtype=torch.float64)
    cold = heated_logits(sure.log(), Heat(0.5, scale))  # h is held to -1: half the temperature
    assert cold[0, 1].item() == pytest.approx(2 * math.log(1e-9), rel=1e-6)


def test_the_scale_is_the_quantile_and_the_ends() -> None:
    found = scale_of(torch.tensor([1.0, 2, 3, 4, 5, 60]), 0.8)
    assert found == pytest.approx((math.log(5), math.log(60 / 5), -math.log(5)))
    assert scale_of(torch.zeros(0), 0.8) is None


def test_without_heat_nothing_changes_and_with_it_the_chances_are_those_that_were_drawn_from() -> None:
    logits = torch.randn(1, 12, generator=torch.Generator().manual_seed(4)) * 1.5
    noise = torch.linspace(0.0005, 0.9995, 1000, dtype=torch.float64)
    settings = sampling(temperature=1.3)
    tokens, logprobs = draw_tokens(logits.expand(1000, -1), noise, settings._replace(heat=SOME))
    expected = heated_logits((logits / 1.3).log_softmax(-1), SOME)[0]
    torch.testing.assert_close(logprobs, expected[tokens])
    torch.testing.assert_close(torch.bincount(tokens, minlength=12) / 1000, expected.exp(), atol=2e-3, rtol=0)
    assert not torch.allclose(expected, (logits / 1.3).log_softmax(-1)[0], atol=1e-3)
    cool = Heat(0.0, SOME.scale)
    assert torch.equal(
        draw_tokens(logits, noise[:1], settings._replace(heat=cool))[0], draw_tokens(logits, noise[:1], settings)[0]
    )


def test_both_engines_draw_at_the_same_temperatures() -> None:
    model, settings = decoder(), sampling(heat=Heat(0.5, SOME.scale))
    ours = engine("native", model, Run(engine_batch=16)).generate(requests(), settings)
    theirs = engine("hf", model, Run(engine_batch=9)).generate(requests(), settings)
    assert torch.equal(ours.tokens, theirs.tokens)
    torch.testing.assert_close(ours.logprobs, theirs.logprobs, atol=1e-4, rtol=1e-4)
    assert not equal(ours, engine("native", model, Run(engine_batch=16)).generate(requests(), sampling()))


def test_the_last_batch_says_what_entropies_are_held_against() -> None:
    memory, usual = Memory(4), sampling()
    assert decode_sampling(None, usual, memory) is usual
    assert decode_sampling(HAPO, usual, memory) is usual, "nothing is known before the first batch"
    entropy = torch.tensor([[1.0, 2, 3], [4, 5, 60]])
    update_decoding(HAPO, batch_of([0, 1], [0, 0], [3, 2]), now_of(entropy=entropy, memory=memory))
    expected = scale_of(torch.tensor([1.0, 2, 3, 4, 5]), 0.8)
    assert decode_sampling(HAPO, usual, memory).heat == Heat(0.5, expected)
    update_decoding(HAPO, batch_of([], []), now_of(entropy=entropy[:, :1], memory=memory))
    assert decode_sampling(HAPO, usual, memory).heat == Heat(0.5, expected), "an empty batch tells nothing"


def test_from_the_second_step_on_sampling_departs_from_the_policy(inputs: dict[str, Path], tmp_path: Path) -> None:
    loop.train_policy(spec_of(3, allocation=FixedAllocation(num_generations=4), decoding=HAPO), inputs, tmp_path / "hapo", HOW)
    loop.train_policy(spec_of(3, allocation=FixedAllocation(num_generations=4)), inputs, tmp_path / "grpo", HOW)
    found, usual = read(tmp_path / "hapo"), read(tmp_path / "grpo")
    assert found[0] == usual[0]
    assert found[0]["kl_old"] == pytest.approx(0, abs=1e-6)
    assert min(line["kl_old"] for line in found[1:]) > 1e-4 > max(line["kl_old"] for line in usual)


def test_a_killed_run_goes_on_at_the_temperatures_that_it_had(inputs: dict[str, Path], tmp_path: Path) -> None:
    spec = spec_of(20, allocation=FixedAllocation(num_generations=4), decoding=HAPO)
    loop.train_policy(spec, inputs, tmp_path / "whole", HOW)
    run_killed(spec, inputs, tmp_path / "killed", HOW, [(3, 0.0), (9, 0.0)])
    assert payload(tmp_path / "killed") == payload(tmp_path / "whole")
    _, tensors, _ = distributed.load_checkpoint(tmp_path / "whole" / "state" / "state") or pytest.fail("no state was kept")
    assert tensors[assembly.MEMORY + SCALE].shape == (3,)


def test_an_engine_that_cannot_decode_so_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(AdaptiveTemperature, "ENGINES", ("native",))
    method = Method(paper="p", decoding=HAPO)
    RLSpec(method=method, mix=[1.0], steps=1)
    with pytest.raises(
        ValidationError, match=r"engine = hf: cannot decode with method\.decoding = adaptive_temperature; write native"
    ):
        RLSpec(method=method, mix=[1.0], steps=1, engine="hf")
