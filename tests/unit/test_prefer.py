"""Preference optimisation: its losses are those of TRL, a run does what its digest says and goes on where it was stopped, and
faults in the data show in the result."""

from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import get_args

import numpy as np
import pytest
import torch
import world
from killed_stage import kill_once_saved
from logged_cases import unknown
from pydantic import ValidationError

from interplay.core.artifact import write_json
from interplay.core.execution import Run
from interplay.core.metrics import read
from interplay.core.model import PermanentError, UserError
from interplay.data import batches, sets
from interplay.model import folder
from interplay.model.trainer_spec import TuneOptimizer
from interplay.train import prefer
from interplay.train.prefer import LOSSES, Logps, implicit_rewards, preference_losses
from interplay.train.spec import REFERENCE_FREE, PreferSpec

TYPES = get_args(PreferSpec.model_fields["loss_type"].annotation)


def spec_of(**changes) -> PreferSpec:
    return PreferSpec(**{"mix": [1.0], "steps": 6, "pairs_per_step": 8, "max_length": 128, **changes})


def logps_of(chosen=(-3.0,), rejected=(-4.0,), ref=((-3.5,), (-3.5,)), tokens=((4.0,), (5.0,)), mean=4.0, kl=0.0) -> Logps:
    values = [torch.tensor(value, dtype=torch.float64) for value in (chosen, rejected, *ref, *tokens)]
    return Logps(*values, mean, torch.tensor(kl, dtype=torch.float64))


def random_logps(seed: int, n: int = 5) -> Logps:
    g = torch.Generator().manual_seed(seed)
    sums = [-4 * torch.rand(n, generator=g, dtype=torch.float64) - 0.5 for _ in range(4)]
    tokens = [torch.randint(2, 9, (n,), generator=g).double() for _ in range(2)]
    return Logps(*sums, *tokens, float(tokens[0].mean()), torch.tensor(0.3, dtype=torch.float64))


# -- losses ----------------------------------------------------------------------------------------------------------


def test_every_loss_of_the_schema_is_in_the_table() -> None:
    assert set(LOSSES) == set(TYPES)


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        # Log ratios 0.5 and -0.5, so a margin of 1: beta 2 makes rewards of 1 and -1.
        ({"loss_type": "sigmoid", "beta": 2.0}, np.log1p(np.exp(-2))),
        (
            {"loss_type": "sigmoid", "beta": 2.0, "label_smoothing": 0.25},
            0.75 * np.log1p(np.exp(-2)) + 0.25 * np.log1p(np.exp(2)),
        ),
        ({"loss_type": "hinge", "beta": 0.25}, 0.75),
        ({"loss_type": "ipo", "beta": 2.0}, (0.5 / 4 + 0.5 / 5 - 0.25) ** 2),
        (
            {"loss_type": "robust", "beta": 2.0, "label_smoothing": 0.25},
            (0.75 * np.log1p(np.exp(-2)) - 0.25 * np.log1p(np.exp(2))) / 0.5,
        ),
        ({"loss_type": "sppo_hard", "beta": 0.5}, 0.25 + 0.25),
        ({"loss_type": "nca_pair", "beta": 2.0}, 1.5 * np.log1p(np.exp(-1)) + 0.5 * np.log1p(np.exp(1)) - 0.5 * 0 - 0.5 * 0),
        ({"loss_type": "apo_zero", "beta": 2.0}, 2 / (1 + np.e)),
        ({"loss_type": "apo_down", "beta": 2.0}, 1 / (1 + np.exp(-1)) + 1 / (1 + np.exp(2))),
        ({"loss_type": "kto", "beta": 2.0}, (1 / (1 + np.e) + 1 / (1 + np.e)) / 2),
        # Means per token -0.75 and -0.8.
        ({"loss_type": "simpo", "beta": 2.0, "simpo_gamma": 0.3}, np.log1p(np.exp(-(2 * 0.05 - 0.3)))),
        ({"loss_type": "cpo", "beta": 2.0, "cpo_alpha": 0.5}, np.log1p(np.exp(-2)) + 0.5 * 3 / 4),
        (
            {"loss_type": "orpo", "beta": 0.5},
            3 / 4 + 0.5 * np.log1p(np.exp(-(0.05 - np.log((1 - np.exp(-0.75)) / (1 - np.exp(-0.8)))))),
        ),
        ({"loss_type": "hinge", "beta": 0.25, "rpo_alpha": 2.0}, 0.75 + 2 * 3 / 4),
    ],
)
def test_losses_on_numbers_worked_by_hand(spec: dict, expected: float) -> None:
    assert preference_losses(spec_of(**spec), logps_of()).item() == pytest.approx(expected, rel=1e-6)


def test_kto_moves_its_reference_point_by_the_divergence() -> None:
    spec = spec_of(loss_type="kto", beta=2.0, desirable_weight=3.0)
    loss = preference_losses(spec, logps_of(kl=0.5)).item()
    # Chosen: 2 (0.5 - 0.5) = 0; rejected: 2 (0.5 + 0.5) = 2.
    assert loss == pytest.approx((3 * 0.5 + 1 / (1 + np.exp(2))) / 2)


def per_token(totals: torch.Tensor, counts: torch.Tensor, width: int) -> torch.Tensor:
    """Log-probabilities (n, width) of tokens that sum to totals (n,), spread evenly over the counts (n,)."""
    inside = torch.arange(width) < counts[:, None]
    return (totals / counts)[:, None] * inside


@pytest.mark.parametrize("loss_type", [name for name in TYPES if name not in (*REFERENCE_FREE, "kto", "irpo")])
@pytest.mark.parametrize("seed", range(3))
def test_losses_with_a_reference_are_those_of_trl(loss_type: str, seed: int) -> None:
    from trl import DPOTrainer

    smoothing = 0.1 if loss_type == "robust" else 0.0
    spec, logps = spec_of(loss_type=loss_type, beta=0.3, label_smoothing=smoothing), random_logps(seed)
    n, width = len(logps.chosen), 9
    counts = torch.cat((logps.chosen_tokens, logps.rejected_tokens))
    # One token of a prompt comes first; a model says log-probabilities of all tokens but that one.
    mask = torch.cat((torch.zeros(2 * n, 1), (torch.arange(width) < counts[:, None]).double()), 1).long()

    def model(total: torch.Tensor):
        said = per_token(total, counts, width)
        logged = {"entropy": said, "mean_logits": said, "is_top1": said > 0}
        return lambda **_: SimpleNamespace(log_probs=said, **logged)

    own, other = torch.cat((logps.chosen, logps.rejected)), torch.cat((logps.ref_chosen, logps.ref_rejected))
    accelerator = SimpleNamespace(device=torch.device("cpu"), gather_for_metrics=lambda x: x, gather=lambda x: x)
    trainer = SimpleNamespace(
        accelerator=accelerator, args=SimpleNamespace(gradient_checkpointing_kwargs=None, gradient_checkpointing=False),
        model=SimpleNamespace(training=True, is_gradient_checkpointing=False, _modules={}), ref_model=model(other), aux_loss_enabled=False,
        ld_alpha=None, precompute_ref_logps=False, f_divergence_type="reverse_kl", loss_types=[loss_type], loss_weights=[1.0],
        beta=spec.beta, label_smoothing=smoothing, use_weighting=False, _metrics={"train": defaultdict(list)},
        _total_train_tokens=0, _tp_size=1,
    )  # fmt: skip
    inputs = {"input_ids": torch.zeros_like(mask), "attention_mask": torch.ones_like(mask), "completion_mask": mask}
    expected = DPOTrainer._compute_loss(trainer, model(own), inputs, return_outputs=False)
    torch.testing.assert_close(preference_losses(spec, logps).mean(), expected, rtol=1e-6, atol=1e-9)
    chosen, rejected = implicit_rewards(spec, logps)
    assert trainer._metrics["train"]["rewards/margins"] == [pytest.approx((chosen - rejected).mean().item())]


@pytest.mark.parametrize("seed", range(3))
def test_simpo_and_cpo_are_those_of_trl(seed: int) -> None:
    from trl.experimental.cpo import CPOTrainer

    logps = random_logps(seed)
    accelerator = SimpleNamespace(device=torch.device("cpu"))
    for name, given in (("simpo", logps.means()), ("cpo", (logps.chosen, logps.rejected))):
        alone = {"cpo_alpha": 0.0} if name == "cpo" else {"simpo_gamma": 0.7}
        spec = spec_of(loss_type=name, beta=1.5, label_smoothing=0.1, **alone)
        trainer = SimpleNamespace(
            alpha=0.0, loss_type={"cpo": "sigmoid"}.get(name, name), simpo_gamma=0.7, beta=1.5, label_smoothing=0.1,
            accelerator=accelerator,
        )  # fmt: skip
        expected, *own = CPOTrainer.cpo_loss(trainer, *given)
        torch.testing.assert_close(preference_losses(spec, logps), expected)
        torch.testing.assert_close(implicit_rewards(spec, logps), tuple(own))


@pytest.mark.parametrize("seed", range(3))
def test_the_odds_ratio_is_that_of_trl(seed: int) -> None:
    from trl.experimental.orpo import ORPOTrainer

    logps, spec = random_logps(seed), spec_of(loss_type="orpo", beta=0.2)
    trainer = SimpleNamespace(beta=0.2, accelerator=SimpleNamespace(device=torch.device("cpu")))
    ratio, *_ = ORPOTrainer.odds_ratio_loss(trainer, *logps.means())  # minus the loss, in float32
    likelihood = -logps.chosen / logps.mean_tokens
    torch.testing.assert_close((preference_losses(spec, logps) - likelihood).float(), -ratio, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("loss_type", TYPES)
def test_gradients_are_the_slopes_of_the_losses(loss_type: str) -> None:
    spec, logps = spec_of(loss_type=loss_type, beta=0.4), random_logps(7)

    def total(chosen: torch.Tensor, rejected: torch.Tensor) -> torch.Tensor:
        return preference_losses(spec, logps._replace(chosen=chosen, rejected=rejected)).sum()

    points = [logps.chosen.clone().requires_grad_(), logps.rejected.clone().requires_grad_()]
    assert torch.autograd.gradcheck(total, points, eps=1e-6, atol=1e-6)


@pytest.mark.parametrize("loss_type", [name for name in TYPES if name != "apo_down"])
def test_every_loss_falls_when_the_chosen_one_gains_on_the_rejected(loss_type: str) -> None:
    # apo_down wants both less likely, the rejected one more so.
    spec = spec_of(loss_type=loss_type)
    before = preference_losses(spec, logps_of()).item()
    after = preference_losses(spec, logps_of(chosen=(-2.5,), rejected=(-4.5,))).item()
    assert after < before


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"loss_type": "ipo", "label_smoothing": 0.1}, "label_smoothing is used by loss_type sigmoid, robust, simpo, cpo only"),
        ({"simpo_gamma": 1.0}, "simpo_gamma is used by loss_type simpo only"),
        ({"loss_type": "orpo", "rpo_alpha": 1.0}, "rpo_alpha: loss_type orpo .* remove it"),
        ({"loss_type": "kto", "pairs_per_step": 1}, "at least 2"),
        ({"loss_type": "robust", "label_smoothing": 0.5}, "less than 0.5"),
        ({"checkpoints": [7]}, "7 is not among the steps 1..6"),
    ],
)
def test_options_that_do_nothing_or_nonsense_are_refused(given: dict, said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        spec_of(**given)


# -- the stage -------------------------------------------------------------------------------------------------------


def pair_set(results: Path, digest: str, swapped: bool = False) -> Path:
    """Gold solutions against the gold with a wrong answer; `swapped`: the other way round."""
    rows = sets.read_rows(world.problem_set(results, f"{digest[:-1]}f", size=40), 0)
    out = results / "curate" / digest
    made = [replace(row, rejected=row.solution[:-1] + str((int(row.solution[-1]) + 1) % 5)) for row in rows]
    if swapped:
        made = [replace(row, solution=row.rejected, rejected=row.solution) for row in made]
    sets.write_table(sets.table_of_rows(made), out)
    write_json(out / "stage.json", {"kind": "curate", "digest": digest, "spec": {}, "deps": {}})
    return out


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    results = tmp_path_factory.mktemp("results")
    return {"init": world.model(results, "a" * 12), "data.0": pair_set(results, "b" * 12)}


def same(a: Path, b: Path) -> bool:
    return all((a / name).read_bytes() == (b / name).read_bytes() for name in ("model/model.safetensors", "metrics.jsonl"))


@pytest.mark.parametrize("loss_type", TYPES)
def test_a_run_widens_the_margin(inputs: dict[str, Path], tmp_path: Path, loss_type: str) -> None:
    optimizer = TuneOptimizer(learning_rate=3e-3)
    metrics = prefer.train_preferences(spec_of(loss_type=loss_type, optimizer=optimizer, steps=10), inputs, tmp_path, Run())
    assert not unknown("prefer", spec_of(loss_type=loss_type), tmp_path)
    lines = read(tmp_path)
    if loss_type == "apo_down":
        assert max(lines[-1]["rewards/chosen"], lines[-1]["rewards/rejected"]) < 0, "it wants both less likely"
    else:
        first, last = (line["logps/chosen"] - line["logps/rejected"] for line in (lines[0], lines[-1]))
        assert last > first
    assert metrics["steps"] == len(lines) == 10
    assert lines[-1]["tokens"] == metrics["tokens"]
    if loss_type not in REFERENCE_FREE:
        assert (lines[0]["rewards/margins"], lines[0]["rewards/accuracies"]) == (0.0, 0.0), "policy and reference start as one"


def test_the_loss_is_that_of_each_pair_alone(inputs: dict[str, Path]) -> None:
    """Shared prompts, padding and passes change nothing: log-probabilities are those of a plain forward pass."""
    policy = folder.load_decoder(inputs["init"] / "model")
    pairs = batches.load_pairs([inputs["data.0"]], [1.0], inputs["init"], 0, 128, "prefer")
    course = prefer.Setup(spec_of(loss_type="simpo"), pairs, policy, None, 100, torch.float32)
    logps = prefer.pair_logps(course, np.arange(4), 1.0, torch.zeros(()))
    for i in range(4):
        for completion, total in ((pairs.chosen[i], logps.chosen[i]), (pairs.rejected[i], logps.rejected[i])):
            ids = torch.tensor([pairs.prompts[i] + completion])
            logs = policy.logits(policy.hidden(ids, torch.arange(ids.shape[1])[None])).log_softmax(-1)[0, :-1]
            alone = logs.gather(1, ids[0, 1:, None])[len(pairs.prompts[i]) - 1 :].sum()
            torch.testing.assert_close(total, alone, rtol=1e-4, atol=1e-4)
    whole, cut = (prefer.pair_metrics(course._replace(pass_tokens=size), np.arange(12)) for size in (100000, 60))
    assert whole == pytest.approx(cut, rel=1e-5)


def test_same_spec_same_bytes_and_faults_show(inputs: dict[str, Path], tmp_path: Path) -> None:
    swapped = pair_set(tmp_path, "c" * 12, swapped=True)
    still = TuneOptimizer(learning_rate=0.0)
    prefer.train_preferences(spec_of(), inputs, tmp_path / "a", Run())
    prefer.train_preferences(spec_of(), inputs, tmp_path / "b", Run())
    prefer.train_preferences(spec_of(), {**inputs, "data.0": swapped}, tmp_path / "swapped", Run())
    prefer.train_preferences(spec_of(optimizer=still), inputs, tmp_path / "still", Run())
    assert same(tmp_path / "a", tmp_path / "b")
    margins = {name: read(tmp_path / name)[-1]["rewards/margins"] for name in ("a", "swapped", "still")}
    assert min(margins["a"], margins["swapped"]) > 0 == margins["still"]
    gaps = {name: read(tmp_path / name)[-1]["logps/chosen"] - read(tmp_path / name)[-1]["logps/rejected"] for name in margins}
    assert gaps["a"] > gaps["still"] > -gaps["swapped"]
    start, end = (folder.load_decoder(path / "model").state_dict() for path in (inputs["init"], tmp_path / "still"))
    assert all(torch.equal(value, end[name]) for name, value in start.items())


def test_held_out_pairs_are_judged_at_the_end_and_at_checkpoints(inputs: dict[str, Path], tmp_path: Path) -> None:
    roles = {**inputs, "validation": inputs["data.0"]}
    metrics = prefer.train_preferences(spec_of(checkpoints=[3]), roles, tmp_path, Run())
    told = [line["step"] for line in read(tmp_path) if "eval_rewards/accuracies" in line]
    assert told == [3, 6]
    assert 0 <= metrics["eval_rewards/accuracies"] <= 1
    assert (tmp_path / "checkpoints/3/model/model.safetensors").exists()


@pytest.mark.parametrize(
    ("changes", "said"), [({"max_length": 10}, "max_length = 10: the longest prompt with a completion has"), ({}, "no pairs")]
)
def test_what_cannot_be_trained_on_is_refused_in_a_line(
    inputs: dict[str, Path], tmp_path: Path, changes: dict, said: str
) -> None:
    data = inputs["data.0"] if changes else world.problem_set(tmp_path, "d" * 12, size=4)
    with pytest.raises(UserError, match=said):
        prefer.train_preferences(spec_of(**changes), {**inputs, "data.0": data}, tmp_path / "out", Run())


def test_a_loss_that_is_not_finite_stops_the_run(inputs: dict[str, Path], tmp_path: Path) -> None:
    wild = TuneOptimizer(learning_rate=1e30, max_grad_norm=0.0)
    with pytest.raises(PermanentError, match="lower the learning rate"):
        prefer.train_preferences(spec_of(optimizer=wild), inputs, tmp_path, Run())


KILLED = """
import sys
from pathlib import Path
sys.path.insert(0, {here!r})
from interplay.core.execution import Run
from interplay.train import prefer
from test_prefer import spec_of
roles = dict(line.split("=") for line in sys.argv[2:])
prefer.train_preferences(spec_of(steps=40), {{role: Path(path) for role, path in roles.items()}}, Path(sys.argv[1]), Run(save_minutes=0.0))
"""


@pytest.mark.slow
def test_a_run_that_is_killed_goes_on_to_the_same_bytes(inputs: dict[str, Path], tmp_path: Path) -> None:
    prefer.train_preferences(spec_of(steps=40), inputs, tmp_path / "whole", Run())
    kill_once_saved(
        KILLED.format(here=str(Path(__file__).parent)), tmp_path / "killed", [f"{role}={path}" for role, path in inputs.items()]
    )
    prefer.train_preferences(spec_of(steps=40), inputs, tmp_path / "killed", Run())
    assert same(tmp_path / "whole", tmp_path / "killed")
