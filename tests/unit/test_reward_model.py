"""Reward models: the loss of pairs on numbers worked by hand and as TRL has it, raters that disagree, folders that Hugging Face
reads, and the best of some samples."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
import torch.nn.functional as F
import world
from killed_stage import kill_once_saved
from logged_cases import unknown
from test_prefer import pair_set

from interplay.core.execution import Run
from interplay.core.metrics import read
from interplay.data import batches, sets
from interplay.model import folder, heads as model_heads
from interplay.model.trainer_spec import TuneOptimizer
from interplay.train import reward_model
from interplay.train.spec import RewardModelSpec

FAST = TuneOptimizer(learning_rate=3e-3)


def spec_of(**changes) -> RewardModelSpec:
    return RewardModelSpec(**{"mix": [1.0], "steps": 6, "pairs_per_step": 8, "max_length": 128, **changes})


# -- the loss --------------------------------------------------------------------------------------------------------


def test_one_head_is_bradley_and_terry_with_a_margin_and_a_centre() -> None:
    chosen, rejected, weights = torch.tensor([[1.5]]), torch.tensor([[0.5]]), torch.zeros(1, 1)
    spec = spec_of(center_rewards_coefficient=0.1)
    loss = reward_model.bradley_terry_losses(spec, chosen, rejected, weights, torch.tensor([0.25]))
    assert loss.item() == pytest.approx(np.log1p(np.exp(-0.75)) + 0.1 * 4.0)


def test_a_mixture_weighs_the_chances_of_its_heads() -> None:
    chosen, rejected = torch.tensor([[2.0, 0.0]]), torch.tensor([[0.0, 1.0]])
    weights = torch.tensor([[0.25, 0.75]]).log()
    expected = np.log(0.25 / (1 + np.exp(-2)) + 0.75 / (1 + np.exp(1)))
    assert reward_model.log_win_probability(chosen, rejected, weights, torch.zeros(1)).item() == pytest.approx(expected)
    assert model_heads.weighted_reward(chosen, weights).item() == pytest.approx(0.5)


def test_raters_that_disagree_by_context_need_a_head_each() -> None:
    """Context says who rates: one likes the first feature, the other dislikes it. A single head that does not see the context
    errs on half of the pairs, whatever it learns (arXiv:2505.24846, theorem 3.1); two with a gate err on few."""
    g = torch.Generator().manual_seed(0)
    context = torch.randint(0, 2, (256,), generator=g)
    good, bad = torch.rand(256, 1, generator=g), -torch.rand(256, 1, generator=g)
    flipped = context[:, None] == 1
    chosen, rejected = torch.where(flipped, bad, good), torch.where(flipped, good, bad)
    nll = {}
    for heads in (1, 2):
        score = (0.1 * torch.randn(heads, 1, generator=g)).requires_grad_()
        gate = torch.zeros(heads, 2, requires_grad=True)
        optimizer = torch.optim.Adam([score, gate], lr=0.1)
        for _ in range(300):
            weights = (F.one_hot(context, 2).float() @ gate.T).log_softmax(-1)
            loss = -reward_model.log_win_probability(chosen @ score.T, rejected @ score.T, weights, torch.zeros(256)).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        nll[heads] = loss.item()
    assert nll[1] > 0.65
    assert nll[2] < 0.1


# -- the stage -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    results = tmp_path_factory.mktemp("results")
    pairs = pair_set(results, "b" * 12)
    return {"init": world.model(results, "a" * 12), "data.0": pairs, "validation": pairs}


def same(a: Path, b: Path) -> bool:
    return all((a / name).read_bytes() == (b / name).read_bytes() for name in ("model/model.safetensors", "metrics.jsonl"))


@pytest.mark.parametrize("heads", [1, 3])
def test_a_run_learns_its_pairs_and_the_same_spec_gives_the_same_bytes(
    inputs: dict[str, Path], tmp_path: Path, heads: int
) -> None:
    spec = spec_of(heads=heads, optimizer=FAST, steps=40, margin="score")
    metrics = reward_model.train_reward_model(spec, inputs, tmp_path / "a", Run())
    reward_model.train_reward_model(spec, inputs, tmp_path / "b", Run())
    assert not unknown("reward_model", spec, tmp_path / "a")
    assert same(tmp_path / "a", tmp_path / "b")
    lines = [line for line in read(tmp_path / "a") if "loss" in line]
    assert metrics["eval_nll"] < lines[0]["nll"]
    assert metrics["eval_accuracy"] > 0.6
    assert (tmp_path / "a/model/gate.safetensors").exists() == (heads > 1)


def test_swapped_pairs_and_a_rate_of_zero_show(inputs: dict[str, Path], tmp_path: Path) -> None:
    swapped = pair_set(tmp_path, "c" * 12, swapped=True)
    spec = spec_of(optimizer=FAST, steps=40)
    found = {
        "right": reward_model.train_reward_model(spec, inputs, tmp_path / "right", Run()),
        "swapped": reward_model.train_reward_model(spec, {**inputs, "data.0": swapped}, tmp_path / "swapped", Run()),
        "still": reward_model.train_reward_model(
            spec_of(optimizer=TuneOptimizer(learning_rate=0.0)), inputs, tmp_path / "still", Run()
        ),
    }
    assert found["right"]["eval_margin"] > found["still"]["eval_margin"] > found["swapped"]["eval_margin"]
    assert found["still"]["eval_nll"] == pytest.approx(np.log(2), abs=0.01)


def test_margins_are_the_differences_of_the_verifiers_scores(inputs: dict[str, Path]) -> None:
    pairs = batches.load_pairs([inputs["data.0"]], [1.0], inputs["init"], 0, 128, "reward_model")
    poor = pairs._replace(rows=[replace(row, rejected="#0") for row in pairs.rows])  # no step at all
    assert reward_model.pair_margins(spec_of(margin="score"), poor).tolist() == [1.0] * len(pairs.rows)
    assert reward_model.pair_margins(spec_of(), pairs).abs().sum() == 0


@pytest.mark.parametrize("heads", [1, 2])
def test_hugging_face_reads_the_folder_and_says_the_same(inputs: dict[str, Path], tmp_path: Path, heads: int) -> None:
    from transformers import AutoModelForSequenceClassification

    model = model_heads.init_reward_model(folder.load_decoder(inputs["init"] / "model"), heads, 0)
    model_heads.save_reward_model(model, tmp_path, inputs["init"] / "tokenizer")
    other = AutoModelForSequenceClassification.from_pretrained(tmp_path).eval()
    pairs = batches.load_pairs([inputs["data.0"]], [1.0], inputs["init"], 0, 128, "reward_model")
    course = reward_model.Setup(spec_of(heads=heads), pairs, torch.zeros(0), model, 1000, torch.float32)
    with torch.no_grad():
        mine, weights = course.model.read(pairs.prompts[:4] * 2, pairs.chosen[:4] + pairs.rejected[:4], course.dtype)
        for i in range(4):
            for row, completion in ((i, pairs.chosen[i]), (i + 4, pairs.rejected[i])):
                theirs = other(torch.tensor([pairs.prompts[i] + completion])).logits[0]
                torch.testing.assert_close(mine[row], theirs, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(weights.exp().sum(-1), torch.ones(8))


def test_the_best_of_some_samples_is_the_one_of_the_greatest_reward(inputs: dict[str, Path], tmp_path: Path) -> None:
    """A model that has learnt pairs of gold and wrong answers picks the gold among samples of the same kind."""
    rows = sets.read_rows(inputs["data.0"], 0)
    entries = [
        {"index": row.index, "sample": sample, "completion": text, "strict": right, "answer": right, "truncated": False}
        for row in rows
        for sample, (text, right) in enumerate([(row.rejected, False), (row.solution, True)])
    ]
    pq.write_table(pa.Table.from_pylist(entries), tmp_path / "samples.parquet")
    roles = {**inputs, "prompts": inputs["data.0"], "samples.0": tmp_path}
    metrics = reward_model.train_reward_model(spec_of(optimizer=FAST, steps=40), roles, tmp_path / "out", Run())
    assert metrics["best_of"]["1"] == {"strict": 0.0, "strict_pass": 0.0, "answer": 0.0, "answer_pass": 0.0}
    assert metrics["best_of"]["2"]["strict_pass"] == 1.0
    assert metrics["best_of"]["2"]["strict"] == pytest.approx(metrics["eval_accuracy"], abs=1e-6)


KILLED = """
import sys
from pathlib import Path
sys.path.insert(0, {here!r})
from interplay.core.execution import Run
from interplay.train import reward_model
from test_reward_model import spec_of
roles = dict(line.split("=") for line in sys.argv[2:])
spec = spec_of(steps=40, heads=2)
reward_model.train_reward_model(spec, {{role: Path(path) for role, path in roles.items()}}, Path(sys.argv[1]), Run(save_minutes=0.0))
"""


@pytest.mark.slow
def test_a_run_that_is_killed_goes_on_to_the_same_bytes(inputs: dict[str, Path], tmp_path: Path) -> None:
    spec = spec_of(steps=40, heads=2)
    reward_model.train_reward_model(spec, inputs, tmp_path / "whole", Run())
    kill_once_saved(
        KILLED.format(here=str(Path(__file__).parent)), tmp_path / "killed", [f"{role}={path}" for role, path in inputs.items()]
    )
    reward_model.train_reward_model(spec, inputs, tmp_path / "killed", Run())
    assert same(tmp_path / "whole", tmp_path / "killed")
