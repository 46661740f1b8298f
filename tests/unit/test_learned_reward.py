"""A trained reward model outside its own stage: as a reward of RL, and as what the samples of an evaluation are ranked by."""

import itertools
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
import report_study as study
import test_rl_loop as loops
import torch
import world
from conftest import copy_configs
from hypothesis import given, strategies as st
from pydantic import ValidationError
from test_prefer import pair_set
from test_reward_model import FAST, spec_of

from interplay.core.artifact import read_json, write_json
from interplay.core.execution import Run
from interplay.core.model import UserError
from interplay.data import batches, tokenizer
from interplay.evaluate import sampling
from interplay.evaluate.scores import best_of_weights, load_ranker
from interplay.evaluate.spec import EvaluateSpec
from interplay.model import heads
from interplay.report.draw.figures import draw_figure
from interplay.report.stats import frame
from interplay.rl import loop
from interplay.rl.spec import RLSpec
from interplay.study.expand import plan_study
from interplay.study.plan import Plan
from interplay.train import reward_model

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A model, and reward models of one and of three heads that learnt from pairs."""
    results = tmp_path_factory.mktemp("results")
    pairs = pair_set(results, "b" * 12)
    made = {"init": world.model(results, "a" * 12), "data.0": pairs, "validation": pairs}
    for count in (1, 3):
        spec = spec_of(heads=count, optimizer=FAST, steps=40)
        reward_model.train_reward_model(spec, made, results / f"judge{count}", Run())
        write_json(results / f"judge{count}" / "record.json", {"spec": {"dtype": "float32"}, "metrics": {}, "files": {}})
        made |= {f"judge{count}": results / f"judge{count}"}
    return made


@pytest.mark.parametrize("count", [1, 3])
def test_the_model_that_is_read_back_says_what_the_trained_one_said_in_passes_of_any_size(
    inputs: dict[str, Path], count: int
) -> None:
    spec, out = spec_of(heads=count), inputs[f"judge{count}"]
    pairs = batches.load_pairs([inputs["data.0"]], [1.0], inputs["init"], 0, 128, "reward_model")
    small, large = (heads.load_scorer(out, inputs["init"], CPU, size) for size in (40, 100_000))
    prompts, texts = pairs.prompts * 2, pairs.chosen + pairs.rejected
    setup = reward_model.Setup(spec, pairs, torch.zeros(len(pairs.rows)), large.model, 4000, torch.float32)
    margin = reward_model.pair_metrics(setup, np.arange(len(pairs.prompts)))["margin"]
    found = large.score(prompts, texts)
    assert found == pytest.approx(small.score(prompts, texts), abs=1e-5)
    half = len(pairs.prompts)
    assert sum(found[:half]) / half - sum(found[half:]) / half == pytest.approx(margin, abs=1e-4)
    assert abs(margin) > 0.01, "a model that was not read back says nothing of its pairs"


def test_another_tokenizer_is_refused(inputs: dict[str, Path], tmp_path: Path) -> None:
    other = Path(shutil.copytree(inputs["judge1"], tmp_path / "judge"))
    file = tokenizer.tokenizer_folder(other) / "tokenizer.json"
    known = read_json(file)
    first, second = list(known["model"]["vocab"])[-2:]
    vocabulary = known["model"]["vocab"]
    vocabulary[first], vocabulary[second] = vocabulary[second], vocabulary[first]
    write_json(file, known)
    with pytest.raises(UserError, match=r"has another tokenizer than .*; name a model of the same source"):
        heads.load_scorer(other, inputs["init"], CPU, 4000)
    spec = EvaluateSpec(by_reward={"model": "reward", "reference": "reference"})
    with pytest.raises(UserError, match=f"^{other}: has another tokenizer than"):
        load_ranker(spec, {"model": inputs["init"], "reward": inputs["judge1"], "reference": other}, Run())
    with pytest.raises(UserError, match=r"holds no reward model; name a stage of kind reward_model"):
        heads.load_reward_model(inputs["init"] / "model")


def test_rl_is_paid_what_the_reward_model_says_of_prompt_completion_and_end(inputs: dict[str, Path], tmp_path: Path) -> None:
    reward = {"sum": [{"reward": {"name": "model", "model": "reward.0"}, "weight": 2.0}, {"reward": {"name": "outcome"}}]}
    spec = RLSpec(**{**loops.spec_of(steps=2).model_dump(), "mix": [1.0], "reward": reward, "keep_rollouts": 32})
    roles = {"init": inputs["init"], "data.0": inputs["data.0"], "reward.0": inputs["judge1"]}
    loop.train_policy(spec, roles, tmp_path / "out", loops.HOW)
    rows = pq.read_table(tmp_path / "out" / "rollouts.parquet").to_pylist()
    encoder, eos = tokenizer.load(inputs["init"]), tokenizer.special(inputs["init"]).eos
    prompts, texts = (tokenizer.encode_texts(encoder, [row[key] for row in rows]) for key in ("prompt", "completion"))
    ended = [text + [eos] * (not row["truncated"]) for text, row in zip(texts, rows, strict=True)]
    said = heads.load_scorer(inputs["judge1"], inputs["init"], CPU, 4000).score(prompts, ended)
    assert [row["reward/model"] for row in rows] == pytest.approx(said, abs=1e-5)
    assert [row["reward"] for row in rows] == pytest.approx(
        [2 * s + r["answer"] for s, r in zip(said, rows, strict=True)], abs=1e-5
    )
    assert {row["truncated"] for row in rows} == {True, False}
    assert np.std(said) > 0.01


def test_several_turns_and_exact_numerics_are_refused() -> None:
    reward: dict[str, Any] = {"name": "model", "model": "reward.0"}
    composed = {"sum": [{"reward": reward}]}
    with pytest.raises(
        ValidationError, match=r"reward = model does not go with method\.episode = retry, which has several turns"
    ):
        RLSpec(method={"paper": "p", "episode": {"name": "retry"}}, mix=[1.0], steps=1, reward=reward)
    with pytest.raises(ValidationError, match=r"reward: model \(passes of a reward model"):
        RLSpec(method={"paper": "p"}, mix=[1.0], steps=1, reward=composed, dtype="int8", numerics="exact")


# -- the best of k -----------------------------------------------------------------------------------------------------------


@given(st.lists(st.tuples(st.integers(0, 3), st.booleans()), min_size=1, max_size=7))
def test_the_best_of_k_is_the_mean_over_all_draws_of_k(samples: list[tuple[int, bool]]) -> None:
    rewards, right = (np.array([values], dtype=float) for values in zip(*samples, strict=True))
    n = len(samples)
    for k in range(1, n + 1):
        draws = list(itertools.combinations(range(n), k))
        best = [max(draw, key=lambda i: (rewards[0, i], -i)) for draw in draws]
        expected = sum(right[0, i] for i in best) / len(draws)
        assert (best_of_weights(rewards, k) * right).mean() == pytest.approx(expected)


def test_an_evaluation_keeps_rewards_and_divergences_and_counts_the_best(inputs: dict[str, Path], tmp_path: Path) -> None:
    other = world.model(tmp_path, "c" * 12, seed=1)
    spec = EvaluateSpec(num_samples=4, max_completion_length=12, by_reward={"model": "reward", "reference": "reference"})
    found: dict[str, Any] = {}
    for name, reference in (("same", inputs["init"]), ("other", other)):
        roles = {"model": inputs["init"], "data": inputs["data.0"], "reward": inputs["judge1"], "reference": reference}
        found[name] = sampling.evaluate_model(spec, roles, tmp_path / name, Run())["all"]
    table = pq.read_table(tmp_path / "same" / "samples.parquet")
    rewards, strict = (table[name].to_numpy().reshape(-1, 4) for name in ("reward", "strict"))
    best = rewards.max(1)
    assert found["same"]["reward_best@4"] == pytest.approx(best.mean(), rel=1e-4)
    assert found["same"]["reward_best@1"] == pytest.approx(rewards.mean(), rel=1e-4)
    assert found["same"]["strict_best@1"] == pytest.approx(strict.mean())
    assert abs(found["same"]["sequence_kl"]) < 1e-4 < 0.01 < found["other"]["sequence_kl"]
    counts = pq.read_table(tmp_path / "same" / "prompts.parquet")
    assert counts["reward_best@4"].to_numpy() == pytest.approx(4 * best, abs=1e-4)


def test_a_divergence_is_of_the_policy_itself() -> None:
    with pytest.raises(ValidationError, match="needs temperature 1, top_p 1 and top_k 0"):
        EvaluateSpec(temperature=0.5, by_reward={"model": "judge", "reference": "base"})


def test_ranked_samples_of_several_blocks_fill_them() -> None:
    """A block of 16 has no best of 32, and its samples would count as if they had."""
    with pytest.raises(ValidationError, match="num_samples: by_reward ranks samples in blocks of 32; write a multiple of 32"):
        EvaluateSpec(num_samples=48, by_reward={"model": "judge"})
    assert [EvaluateSpec(num_samples=n, by_reward={"model": "judge"}).num_samples for n in (16, 64)] == [16, 64]


def test_a_figure_over_kl_places_arms_by_their_divergence_and_draws_the_best_of_n(tmp_path: Path) -> None:
    """By hand: two prompts of 4 samples; the sums over a prompt's samples are what an evaluation leaves."""
    rows, inputs = [], {}
    for arm, shares, kl in (("base", (0.25, 0.5, 1.0), 0.0), ("rl", (0.5, 0.5, 0.5), 9.0)):
        for seed in (0, 1):
            digest = f"{arm}{seed}"
            out = study.write_evaluation(tmp_path, digest, {2: [1, 1]})
            known = pd.DataFrame({"index": [0, 1], "op": 2, "band": "id", "mode": "forward", "n": 4, "strict": 1, "answer": 1})
            known = known.assign(score=1.0, sequence_kl=[4 * kl - seed, 4 * kl + seed])
            for k, share in zip((1, 2, 4), shares, strict=True):
                known[f"strict_best@{k}"] = 4 * share
            known.to_parquet(out / "prompts.parquet")
            inputs[digest] = out
            rows.append(study.arm(arm, seed, [f"base:pretrain:p{seed}"], digest))
    figure = {"x": "kl", "y": "strict_best@1"}
    placed = {"over": [{"arm": arm, "x": "", "line": arm} for arm in ("base", "rl")]}
    results = frame.read_results(study.spec(rows, figures={"over": figure}, placed=placed), inputs)
    drawn = draw_figure(results, results.spec.figures["over"])
    lines = {one["name"]: [point[:2] for point in one["points"]] for one in drawn.chart["panels"][0]["lines"]}
    assert lines["rl"] == [[3.0, 50.0]]
    at = {n: pytest.approx(np.sqrt(np.log(n) - (n - 1) / n), rel=1e-4) for n in (2, 4)}
    assert lines["best of n, base"] == [[0.0, 25.0], [at[2], 50.0], [at[4], 100.0]]
    assert "against square root of KL from the reference" in drawn.caption


# -- planned -----------------------------------------------------------------------------------------------------------------


def planned(folder: Path, *changes: tuple[str, str]) -> Plan:
    configs = copy_configs(folder)
    path = configs / "study" / "methods" / "over_optimisation.yaml"
    text = path.read_text()
    for old, new in changes:
        assert old in text, old
        text = text.replace(old, new)
    path.write_text(text)
    return plan_study(configs, "methods/over_optimisation", "coffee")


def test_the_reward_model_of_the_same_base_is_a_dependency_and_its_arms_name_no_part_of_the_identity(tmp_path: Path) -> None:
    plan = planned(tmp_path / "a")
    rows = {(row.arm, row.seed): row for row in plan.stages[plan.report].spec.arms}
    for seed in (0, 1):
        learned, judge = (rows[arm, seed].path[-1].digest for arm in ("learned[beta=0.0]", "judge"))
        stage, evaluation = plan.stages[learned], plan.stages[rows["learned[beta=0.0]", seed].evaluations["eval"]]
        assert stage.deps["reward.0"] == evaluation.deps["reward"] == judge
        assert evaluation.deps["reference"] == rows["base", seed].path[-1].digest == stage.deps["init"]
        assert (stage.spec.reward.model, evaluation.spec.by_reward.model) == ("reward.0", "reward")
    renamed = planned(
        tmp_path / "b", ("judge: {path:", "rater: {path:"), ("model: judge", "model: rater"), ("arm: judge", "arm: rater")
    )
    assert renamed.stages.keys() - {renamed.report} == plan.stages.keys() - {plan.report}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            ("{name: model, model: judge}", "{name: model, model: jugde}"),
            r"rl\.reward = 'jugde': no such arm; did you mean 'judge'",
        ),
        (("{name: model, model: judge}", "{name: model, model: base}"), "ends with base of kind pretrain; name an arm that ends"),
        (("{name: model, model: judge}", "{name: model, model: verified}"), "'verified': ends with rl of kind rl; name an arm"),
        (("{name: model, model: judge}", "{name: model, model: 'learned[beta=0.0]'}"), "that arm is itself made with this"),
        (("reference: base}", "reference: bse}"), r"eval\.by_reward\.reference = 'bse': no such arm; did you mean 'base'"),
    ],
)
def test_arms_that_hold_no_reward_model_are_refused(tmp_path: Path, change: tuple[str, str], said: str) -> None:
    with pytest.raises(UserError, match=said):
        planned(tmp_path, change)
