"""Selection among checkpoints: by hand-made metrics, by hand-made samples, and after a real training run."""

import json
import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import report_study as toy
import world

from interplay.core import artifact
from interplay.core.execution import Run
from interplay.core.model import UserError
from interplay.data import corpus
from interplay.data.spec import CorpusSpec
from interplay.evaluate import sampling
from interplay.evaluate.spec import EvaluateSpec, SelectSpec
from interplay.model import folder
from interplay.train import lm
from interplay.train.spec import PretrainSpec


def trained(root: Path, **values: list[float]) -> Path:
    """A finished stage of 6 steps with these metrics, that keeps steps 2 and 4; each model's weights are its step's number."""
    out = root / "pretrain" / ("a" * 12)
    for step, place in ((2, "checkpoints/2"), (4, "checkpoints/4"), (6, "")):
        artifact.write_atomic(out / place / "model" / "model.safetensors", str(step).encode())
    toy.write_steps(out, **values)
    artifact.finish(out, {}, {"steps": 6})
    return out


def choose(root: Path, by: str, mode: str, more: dict[str, Path] | None = None, **values: list[float]) -> tuple[dict, Path]:
    out = root / "out"
    spec = SelectSpec(by=by, mode=mode, candidates=[2, 4])
    return sampling.select_checkpoint(spec, {"init": trained(root, **values), **(more or {})}, out, Run()), out


@pytest.mark.parametrize(("mode", "step"), [("min", 4), ("max", 2)])
def test_the_least_or_greatest_value_wins_and_its_model_is_copied(tmp_path: Path, mode: str, step: int) -> None:
    metrics, out = choose(tmp_path, "loss", mode, loss=[9, 3, 9, 1, 9, 2])
    choice = json.loads((out / "choice.json").read_text())
    assert metrics["step"] == choice["chosen"]["step"] == step
    assert (out / "model/model.safetensors").read_bytes() == str(step).encode()
    assert choice["candidates"] == [{"step": 2, "value": 3.0}, {"step": 4, "value": 1.0}, {"step": 6, "value": 2.0}]


def test_among_equals_the_earliest_step_wins_and_the_end_competes(tmp_path: Path) -> None:
    assert choose(tmp_path / "a", "loss", "min", loss=[9, 2, 9, 1, 9, 1])[0]["step"] == 4
    metrics, out = choose(tmp_path / "b", "loss", "min", loss=[9, 2, 9, 2, 9, 1])
    assert metrics["step"] == 6
    assert (out / "model/model.safetensors").read_bytes() == b"6"


def test_what_is_no_number_never_wins(tmp_path: Path) -> None:
    nan = math.nan
    assert sampling.best_candidate([nan, 2.0, 1.0], "min") == 2
    assert sampling.best_candidate([nan, 2.0, 1.0], "max") == 1
    assert sampling.best_candidate([math.inf, 2.0, nan], "min") == 1
    assert sampling.best_candidate([nan, nan], "max") is None
    metrics, out = choose(tmp_path / "a", "loss", "max", loss=[9, nan, 9, 1, 9, nan])
    assert metrics["step"] == 4
    assert [row["value"] for row in json.loads((out / "choice.json").read_text())["candidates"]] == [None, 1.0, None]
    with pytest.raises(UserError, match="has a value that is a number"):
        choose(tmp_path / "b", "loss", "min", loss=[1, nan, 1, nan, 1, nan])


def test_a_key_that_no_line_has_is_refused_with_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="did you mean 'entropy'"):
        choose(tmp_path, "entropi", "min", entropy=[1.0] * 6)


def test_by_pass_rate_the_blocks_of_a_candidate_count_as_one(tmp_path: Path) -> None:
    passes = {"0.0": [4, 0], "0.1": [0, 0], "1.0": [2, 2], "1.1": [2, 3], "2.0": [1, 1], "2.1": [1, 1]}
    roles = {f"evaluation.{n}": toy.write_evaluation(tmp_path, n, {2: counts}, n=4) for n, counts in passes.items()}
    metrics, _ = choose(tmp_path, "strict_pass@1", "max", roles, loss=[1.0] * 6)
    assert metrics["step"] == 4
    assert metrics["value"] == pytest.approx((4 / 8 + 5 / 8) / 2)


def test_by_entropy_the_nearest_to_the_target_wins_per_token(tmp_path: Path) -> None:
    nats = {
        "0.0": ([3.0, 1.0], [3, 1]),
        "1.0": ([2.0, 4.0], [10, 2]),
        "2.0": ([0.5, 0.5], [5, 5]),
    }  # 1, a half and a tenth a token
    roles = {f"evaluation.{n}": samples_with_nats(tmp_path / n, *columns) for n, columns in nats.items()}
    root = trained(tmp_path, loss=[1.0] * 6)
    for mode, target, step in (
        ("max", None, 2),
        ("min", None, 6),
        ("nearest", 0.6, 4),
        ("nearest", 0.05, 6),
        ("nearest", 0.8, 2),
    ):
        spec = SelectSpec(by="entropy", mode=mode, target=target, candidates=[2, 4])
        found = sampling.select_checkpoint(spec, {"init": root, **roles}, tmp_path / f"{mode}{target}", Run())
        assert found["step"] == step
    assert [row["value"] for row in json.loads((tmp_path / "maxNone/choice.json").read_text())["candidates"]] == [1.0, 0.5, 0.1]


def samples_with_nats(out: Path, nats: list[float], lengths: list[int]) -> Path:
    out.mkdir()
    pd.DataFrame({"band": "edge", "nats": np.float32(nats), "length": lengths}).to_parquet(out / "samples.parquet")
    return out


def test_the_entropy_of_samples_is_that_of_the_policy(tmp_path: Path) -> None:
    problems, model = world.problem_set(tmp_path, "e" * 12, 12), world.model(tmp_path, "f" * 12)
    spec = EvaluateSpec(num_samples=16, max_completion_length=8, entropy=True)
    sampling.evaluate_model(spec, {"model": model, "data": problems}, tmp_path / "out", Run())
    samples = pd.read_parquet(tmp_path / "out/samples.parquet")
    own = samples["nats"].sum() / samples["length"].sum()
    vocabulary = folder.load_decoder(model / "model").head().shape[0]
    assert own == pytest.approx(math.log(vocabulary), rel=0.02)  # nothing is learnt: all tokens are about as likely
    without = EvaluateSpec(num_samples=16, max_completion_length=8)
    sampling.evaluate_model(without, {"model": model, "data": problems}, tmp_path / "without", Run())
    plain = pd.read_parquet(tmp_path / "without/samples.parquet")
    pd.testing.assert_frame_equal(plain, samples.drop(columns="nats"))


def test_a_target_belongs_to_the_nearest_and_entropy_to_the_policy_itself() -> None:
    for given in ({"mode": "nearest"}, {"mode": "min", "target": 1.0}):
        with pytest.raises(ValueError, match="target: belongs to mode: nearest"):
            SelectSpec(by="entropy", **given)
    with pytest.raises(ValueError, match="needs temperature 1"):
        EvaluateSpec(entropy=True, temperature=0.7)


def test_after_a_real_run_the_choice_is_the_checkpoint_of_least_validation_loss_and_can_be_evaluated(tmp_path: Path) -> None:
    results = tmp_path / "results"
    data, held_out = world.problem_set(results, "d" * 12, 300), world.problem_set(results, "e" * 12, 12, split="validation")
    base = world.model(results, "f" * 12)
    tokens = results / "corpus" / ("c" * 12)
    corpus.build_corpus(CorpusSpec(mix=[1.0], sequence_length=64), {"data.0": data, "tokenizer": base}, tokens, Run())
    spec = PretrainSpec(model=world.SHAPE, tokens=6000, batch_tokens=512, checkpoints=[3, 9], dtype="float32")
    out = results / "pretrain" / ("a" * 12)
    values = lm.train_language_model(spec, {"corpus": tokens, "tokenizer": base, "validation": held_out}, out, Run())
    artifact.finish(out, {}, values)
    assert artifact.kept_steps(out) == [3, 9]

    chosen = results / "select" / ("b" * 12)
    found = sampling.select_checkpoint(
        SelectSpec(by="eval_loss/easy", mode="min", candidates=[3, 9]), {"init": out}, chosen, Run()
    )
    losses = {row["step"]: row["value"] for row in json.loads((chosen / "choice.json").read_text())["candidates"]}
    assert list(losses) == [3, 9, values["steps"]]
    assert found["value"] == min(losses.values())
    folder.load_decoder(chosen / "model")

    sampled = EvaluateSpec(num_samples=2, max_completion_length=8)
    for name, model in (("choice", chosen), ("step", artifact.at_step(out, 3)), ("end", out)):
        sampling.evaluate_model(sampled, {"model": model, "data": held_out}, tmp_path / name, Run())
    whole, choice = ((tmp_path / name / "samples.parquet").read_bytes() for name in ("end", "choice"))
    assert (choice == whole) == (found["step"] == values["steps"])
    assert np.isfinite(list(losses.values())).all()
