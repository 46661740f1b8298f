"""Unlearning: objectives and steps on numbers worked by hand, runs that forget one set and keep another, and a model without what
an assistant knows."""

from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
import world
from killed_stage import kill_once_saved
from logged_cases import unknown
from pydantic import ValidationError

from interplay.core.execution import Run
from interplay.core.metrics import read
from interplay.core.model import UserError
from interplay.data import corpus
from interplay.evaluate import scores
from interplay.model import folder, heads
from interplay.model.heads import Composed
from interplay.model.trainer_spec import TuneOptimizer
from interplay.rollout.engine import engine
from interplay.rollout.request import Request, Sampling
from interplay.train import unlearn
from interplay.train.spec import UnlearnSpec
from interplay.train.unlearn import ForgetLogps, Gradients, blur_gradient, forget_objective, hamu_gradient, uniform_divergence

FAST = TuneOptimizer(learning_rate=3e-3)


def spec_of(**changes) -> UnlearnSpec:
    given = {"forget_mix": [1.0], "retain_mix": [1.0], "steps": 8, "problems_per_step": 8, "max_length": 128, **changes}
    return UnlearnSpec(**given)


# -- objectives and steps --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"objective": "gradient_ascent"}, -3 / 4),
        ({"objective": "grad_diff"}, -3 / 4),
        # Log ratio -3 + 2.5 = -0.5: (2 / 0.5) log(1 + exp(-0.25)).
        ({"objective": "npo", "beta": 0.5}, 4 * np.log1p(np.exp(-0.25))),
        # Mean log-probability -0.6; (2 / 2.5) log(1 + exp(-1.5 + 0.3)).
        ({"objective": "simnpo", "beta": 2.5, "simnpo_gamma": 0.3}, 0.8 * np.log1p(np.exp(-1.2))),
    ],
)
def test_objectives_on_numbers_worked_by_hand(given: dict, expected: float) -> None:
    said = ForgetLogps(*(torch.tensor([value], dtype=torch.float64) for value in (-3.0, -2.5, 5.0)), 4.0)
    assert forget_objective(spec_of(**given), said).item() == pytest.approx(expected)


@pytest.mark.parametrize("objective", ["grad_diff", "npo", "simnpo"])
def test_gradients_are_the_slopes_of_the_objectives(objective: str) -> None:
    rest = torch.tensor([-2.0, -4.0], dtype=torch.float64), torch.tensor([3.0, 5.0], dtype=torch.float64)
    logp = torch.tensor([-3.0, -1.0], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(
        lambda x: forget_objective(spec_of(objective=objective), ForgetLogps(x, *rest, 4.0)).sum(), [logp]
    )


def test_npo_pulls_as_ascent_does_at_first_and_lets_go_of_what_is_forgotten() -> None:
    # arXiv:2404.05868, section 3.2: the weight of a problem is 2 r / (1 + r), r = (policy / reference)^beta.
    def slope(ratio: float) -> float:
        logp = torch.tensor([ratio], requires_grad=True)
        zero, one = torch.zeros(1), torch.ones(1)
        forget_objective(spec_of(objective="npo", beta=0.5), ForgetLogps(logp, zero, one, 1.0)).sum().backward()
        return logp.grad.item()

    assert slope(0.0) == pytest.approx(1.0)
    assert slope(-10.0) == pytest.approx(2 * np.exp(-5) / (1 + np.exp(-5)), rel=1e-4)


def gradients(seed: int) -> Gradients:
    g = torch.Generator().manual_seed(seed)
    return Gradients(torch.randn(6, generator=g, dtype=torch.float64), torch.randn(6, generator=g, dtype=torch.float64))


def test_the_step_of_blur_by_hand() -> None:
    pair = Gradients(torch.tensor([3.0, 1.0]), torch.tensor([2.0, 0.0]))
    spec = spec_of(objective="grad_diff", formulation="blur", blur_gamma=0.5)
    assert blur_gradient(spec, pair).tolist() == [1.0, 1.0], "3 is taken out, half of 2 put in"


@pytest.mark.parametrize("seed", range(5))
def test_blur_forgets_at_its_own_pace_whatever_is_retained(seed: int) -> None:
    pair = gradients(seed)
    step = blur_gradient(spec_of(objective="npo", formulation="blur", blur_gamma=2.0), pair)
    assert step.dot(pair.forget).item() == pytest.approx(2 * pair.forget.dot(pair.forget).item())


@pytest.mark.parametrize("gain", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("seed", range(5))
def test_no_step_within_hamus_bounds_costs_less(seed: int, gain: float) -> None:
    pair = gradients(seed)
    step = -hamu_gradient(spec_of(objective="grad_diff", formulation="hamu", hamu_gain=gain), pair)
    radius, rising = pair.retain.norm(), -pair.forget
    bound = gain * radius * rising.norm()
    assert step.norm() <= radius * (1 + 1e-9)
    assert step.dot(rising) >= bound - 1e-9
    others = torch.randn(200000, 6, generator=torch.Generator().manual_seed(9), dtype=torch.float64)
    others *= radius / others.norm(dim=1, keepdim=True)
    others = others[others @ rising >= bound]
    assert not len(others) or (others @ pair.retain).min() >= step.dot(pair.retain) - 1e-9


def test_knowing_nothing_is_no_distance_from_it() -> None:
    logits = torch.tensor([[1.0, 1.0, 1.0], [0.0, 0.0, np.log(2.0)]])
    assert uniform_divergence(logits)[0].item() == pytest.approx(0.0, abs=1e-6)
    expected = np.mean([np.log(1 / 3) - np.log(p) for p in (0.25, 0.25, 0.5)])
    assert uniform_divergence(logits)[1].item() == pytest.approx(expected, rel=1e-5)


def test_an_assistant_takes_off_what_it_knows_of_likely_tokens() -> None:
    pair = Composed(None, None, 0.5, 0.1)
    base, assistant = torch.tensor([2.0, 1.0, -9.0]), torch.tensor([3.0, 0.0, 0.0])
    known = assistant.log_softmax(-1) + np.log(3)
    torch.testing.assert_close(pair.logits(base, assistant), base - 0.5 * known * torch.tensor([1.0, 1.0, 0.0]))
    torch.testing.assert_close(pair.logits(base, assistant + 7), pair.logits(base, assistant))
    torch.testing.assert_close(pair.logits(base, torch.zeros(3)), base)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"objective": "gradient_ascent", "retain_weight": 2.0}, "retain_weight is used by objective"),
        ({"objective": "grad_diff", "beta": 0.5}, "beta is used by objective npo, simnpo only"),
        ({"blur_gamma": 2.0}, "blur_gamma is used by formulation blur only"),
        ({"objective": "uld", "formulation": "blur"}, "does not have both"),
        ({"objective": "npo", "formulation": "hamu"}, "formulation hamu .*; write objective: grad_diff"),
        (
            {"formulation": "blur", "retain_weight": 2.0},
            "retain_weight is used by formulation weighted_sum only; remove it from blur",
        ),
        ({"objective": "uld", "checkpoints": [2]}, "checkpoints of objective uld .*; remove them"),
    ],
)
def test_options_that_do_nothing_are_refused(given: dict, said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        spec_of(**given)


# -- the stage -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    results = tmp_path_factory.mktemp("results")
    return {
        "init": world.model(results, "a" * 12),
        "forget.0": world.problem_set(results, "b" * 12, size=24),
        "retain.0": world.problem_set(results, "c" * 12, size=24, seed=1, split="train"),
    }


def same(a: Path, b: Path, name: str = "model") -> bool:
    return all((a / file).read_bytes() == (b / file).read_bytes() for file in (f"{name}/model.safetensors", "metrics.jsonl"))


WAYS = [
    {"objective": "gradient_ascent"},
    {"objective": "grad_diff"},
    {"objective": "npo"},
    {"objective": "simnpo", "beta": 2.5},
    {"objective": "npo", "formulation": "blur"},
    {"objective": "grad_diff", "formulation": "hamu"},
]


@pytest.mark.parametrize("way", WAYS, ids=lambda way: "-".join(map(str, way.values())))
def test_a_run_lowers_what_it_minimises(inputs: dict[str, Path], tmp_path: Path, way: dict) -> None:
    metrics = unlearn.train_unlearning(spec_of(**way, optimizer=FAST, steps=12), inputs, tmp_path, Run())
    assert not unknown("unlearn", spec_of(**way), tmp_path)
    lines = [line for line in read(tmp_path) if "loss" in line]
    assert len(lines) == 12
    if way["objective"] == "gradient_ascent":
        assert metrics["eval_forget_loss"] > metrics["eval_forget_loss_before"]
    if way.get("formulation"):
        assert all(-1 <= line["grad_cosine"] <= 1 for line in lines)
    else:
        assert lines[-1]["loss"] < lines[0]["loss"]


def test_gradients_are_those_of_the_weighted_sum(inputs: dict[str, Path]) -> None:
    """Passes change nothing, and the sum of both parts is what a plain forward pass says."""
    spec = spec_of(objective="grad_diff", retain_weight=0.5)
    found = []
    for size in (100000, 64):
        course = unlearn.prepare(spec, inputs, Run(micro_batch_tokens=size))
        values = unlearn.weighted_sum_gradient(
            course, unlearn.draw_problems(course, course.forget, 1), unlearn.draw_problems(course, course.retain, 1)
        )
        found.append((values, unlearn.take_gradient(course.model)))
    (values, gradient), (again, other) = found
    assert values == pytest.approx(again, rel=1e-5)
    torch.testing.assert_close(gradient, other, rtol=1e-4, atol=1e-6)
    model = folder.load_decoder(inputs["init"] / "model")
    total = torch.zeros(())
    for problems, weight in ((course.forget, -1.0), (course.retain, 0.5)):
        some, losses = unlearn.draw_problems(course, problems, 1), []
        for i in range(len(some.lengths)):
            one = corpus.select_problems(some, np.array([i]))
            ids = torch.from_numpy(one.tokens.astype(np.int64))[None]
            logits = model.logits(model.hidden(ids, torch.arange(ids.shape[1])[None]))[0, :-1]
            losses.append(F.cross_entropy(logits, ids[0, 1:], reduction="none")[int(one.prompts[0]) - 1 :])
        total = total + weight * torch.cat(losses).mean()
    total.backward()
    assert total.item() == pytest.approx(values["loss"], rel=1e-5)
    torch.testing.assert_close(unlearn.take_gradient(model), gradient, rtol=1e-4, atol=1e-6)


def test_same_spec_same_bytes_and_faults_show(inputs: dict[str, Path], tmp_path: Path) -> None:
    swapped = {**inputs, "forget.0": inputs["retain.0"], "retain.0": inputs["forget.0"]}
    spec = spec_of(objective="grad_diff", optimizer=FAST)
    for name, roles in (("a", inputs), ("b", inputs), ("swapped", swapped)):
        unlearn.train_unlearning(spec, roles, tmp_path / name, Run())
    unlearn.train_unlearning(spec_of(optimizer=TuneOptimizer(learning_rate=0.0)), inputs, tmp_path / "still", Run())
    assert same(tmp_path / "a", tmp_path / "b")
    assert not same(tmp_path / "a", tmp_path / "swapped")
    start, end = (folder.load_decoder(path / "model").state_dict() for path in (inputs["init"], tmp_path / "still"))
    assert all(torch.equal(value, end[name]) for name, value in start.items())


def test_a_problem_that_is_too_long_is_refused_in_a_line(inputs: dict[str, Path], tmp_path: Path) -> None:
    with pytest.raises(UserError, match="max_length = 9: the longest problem of forget has"):
        unlearn.train_unlearning(spec_of(max_length=9), inputs, tmp_path, Run())


def test_uld_leaves_a_pair_that_samples_and_scores_as_one(inputs: dict[str, Path], tmp_path: Path) -> None:
    spec = spec_of(objective="uld", optimizer=TuneOptimizer(learning_rate=1e-2), steps=60, top_logit_filter=0.0)
    metrics = unlearn.train_unlearning(spec, inputs, tmp_path, Run())
    assert not (tmp_path / "model").exists()
    gain, cost = (metrics[f"eval_{side}_loss"] - metrics[f"eval_{side}_loss_before"] for side in ("forget", "retain"))
    assert gain > cost
    pair = heads.load_model(tmp_path, torch.device("cpu"))
    assert isinstance(pair, Composed)
    assert pair.assistant.shape.num_hidden_layers == 1
    base = folder.load_decoder(inputs["init"] / "model").state_dict()
    assert all(torch.equal(value, base[name]) for name, value in pair.base.state_dict().items())

    problems = corpus.select_problems(corpus.encode_problems(inputs["forget.0"], inputs["init"]), np.arange(24))
    means = scores.nll_by_problem(pair, problems, 500, torch.float32)
    tokens = problems.lengths - problems.prompts
    assert (means * tokens).sum() / tokens.sum() == pytest.approx(metrics["eval_forget_loss"], rel=1e-5)

    sampling = Sampling(temperature=0.0, top_p=1.0, top_k=0, max_completion_length=20, seed=0, eos=None, pad=0)
    prompts = [problems.tokens[:5].tolist(), problems.tokens[:9].tolist()]
    rollouts = engine("native", pair, Run()).generate([Request(ids, k, 0, 1) for k, ids in enumerate(prompts)], sampling)
    for prompt, drawn in zip(prompts, rollouts.tokens.tolist(), strict=True):
        ids = list(prompt)
        for token in drawn:
            seen, places = torch.tensor([ids]), torch.arange(len(ids))[None]
            with torch.no_grad():
                said = [part.logits(part.hidden(seen, places))[0, -1] for part in (pair.base, pair.assistant)]
            logits = pair.logits(*said)
            assert logits[token] >= logits.max() - 1e-4
            ids.append(token)
    with pytest.raises(UserError, match="needs 'native'"):
        engine("hf", pair, Run())


KILLED = """
import sys
from pathlib import Path
sys.path.insert(0, {here!r})
from interplay.core.execution import Run
from interplay.train import unlearn
from test_unlearn import spec_of
roles = dict(line.split("=") for line in sys.argv[3:])
spec = spec_of(steps=40, objective=sys.argv[2])
unlearn.train_unlearning(spec, {{role: Path(path) for role, path in roles.items()}}, Path(sys.argv[1]), Run(save_minutes=0.0))
"""


@pytest.mark.slow
@pytest.mark.parametrize("objective", ["npo", "uld"])
def test_a_run_that_is_killed_goes_on_to_the_same_bytes(inputs: dict[str, Path], tmp_path: Path, objective: str) -> None:
    spec = spec_of(steps=40, objective=objective)
    unlearn.train_unlearning(spec, inputs, tmp_path / "whole", Run())
    kill_once_saved(
        KILLED.format(here=str(Path(__file__).parent)),
        tmp_path / "killed",
        [objective, *(f"{role}={path}" for role, path in inputs.items())],
    )
    unlearn.train_unlearning(spec, inputs, tmp_path / "killed", Run())
    assert same(tmp_path / "whole", tmp_path / "killed", "assistant" if objective == "uld" else "model")
