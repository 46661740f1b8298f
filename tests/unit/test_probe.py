"""Linear probes and similarities of layers: on states whose answer is known, and of models that are the same."""

import json
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
import world

from interplay.core.execution import Run
from interplay.core.model import UserError
from interplay.data import sets, tokenizer
from interplay.evaluate import sampling, scores
from interplay.evaluate.spec import EvaluateSpec
from interplay.model import folder, heads
from interplay.report.stats.frame import count_samples, prompt_scores
from interplay.results import check

STREAM = np.random.default_rng(0)


def test_a_planted_direction_is_read_and_noise_is_not() -> None:
    labels = STREAM.integers(0, 5, 400)
    noise = STREAM.normal(size=(400, 16))
    planted = noise + 4 * np.eye(5, 16)[labels] @ np.linalg.qr(STREAM.normal(size=(16, 16)))[0]
    assert heads.probed(planted, labels).mean() > 0.95
    assert 0.1 < heads.probed(noise, labels).mean() < 0.3, "a fifth by chance, on prompts that it was not fitted to"
    constant = np.ones((400, 16))
    share = np.bincount(labels[::2]).argmax(), np.bincount(labels[1::2]).argmax()
    assert heads.probed(constant, labels).mean() == np.mean([*(labels[1::2] == share[0]), *(labels[::2] == share[1])])


def test_similarities_are_one_of_the_same_states_and_cka_of_turned_and_scaled_ones() -> None:
    states = STREAM.normal(size=(300, 8))
    turned = 3 * states @ np.linalg.qr(STREAM.normal(size=(8, 8)))[0] + 5
    assert heads.cosines(states, 2 * states) == pytest.approx(np.ones(300))
    assert heads.linear_cka(states, turned) == pytest.approx(1)
    assert heads.linear_cka(states, STREAM.normal(size=(300, 8))) < 0.1
    assert np.isnan(heads.linear_cka(states, np.ones((300, 8))))


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    results = tmp_path_factory.mktemp("results")
    data = world.problem_set(results, "d" * 12, 40, split="test")
    return {"model": world.model(results, "m" * 12), "compared": world.model(results, "n" * 12, seed=1), "data": data}


def evaluated(inputs: dict[str, Path], out: Path) -> dict:
    spec = EvaluateSpec.model_validate({"num_samples": 2, "max_completion_length": 6, "probe": {"against": "compared"}})
    out.mkdir()
    found = json.loads(json.dumps(sampling.evaluate_model(spec, inputs, out, Run())))
    record = {"spec": json.loads(spec.model_dump_json()), "metrics": found}
    assert not list(check._evaluation(out, record, inputs)), "the record does not follow from its samples"
    return found


def test_the_same_model_is_like_itself_and_another_start_is_not(inputs: dict[str, Path], tmp_path: Path) -> None:
    same = evaluated({**inputs, "compared": inputs["model"]}, tmp_path / "same")["layers"]
    other = evaluated(inputs, tmp_path / "other")["layers"]
    for layer in ("layer_1", "layer_2"):
        assert same[f"cka:{layer}"] == same[f"cosine:{layer}"] == 1
        assert other[f"cosine:{layer}"] < 0.9
        assert other[f"cka:{layer}"] < 0.99
        prompts = count_samples(tmp_path / "other")
        assert prompt_scores(prompts, f"cosine:{layer}").mean() == pytest.approx(other[f"cosine:{layer}"], abs=1e-5)
        assert prompt_scores(prompts, f"probe:{layer}").mean() == pytest.approx(other[f"probe:{layer}"], abs=1e-5)


def test_states_are_those_of_the_decoder_at_the_last_token_of_each_prompt(inputs: dict[str, Path]) -> None:
    texts = [row.prompt for row in sets.load_pool([inputs["data"]]).rows[:9]]
    prompts = tokenizer.encode_texts(tokenizer.load(inputs["model"]), texts)
    states = heads.layer_states(inputs["model"], prompts, torch.device("cpu"), 40)
    assert states.shape == (2, 9, world.SHAPE.hidden_size)
    decoder = folder.load_decoder(inputs["model"] / "model")
    with torch.no_grad():
        for row, prompt in enumerate(prompts):
            last = decoder.hidden(torch.tensor([prompt]), torch.arange(len(prompt))[None], dtype=torch.float32)[0, -1]
            assert states[1, row] == pytest.approx(last.double().numpy(), abs=1e-4)


def test_the_value_is_that_of_the_answer_or_of_a_step_before_it(inputs: dict[str, Path]) -> None:
    rows = sets.load_pool([inputs["data"]]).rows
    labels = scores.gold_labels(rows, 0)
    assert len({(label, row.answer) for label, row in zip(labels, rows, strict=True)}) == len({row.answer for row in rows})
    before = scores.gold_labels(rows, 1)
    assert (before != labels).any()
    with pytest.raises(UserError, match=r"probe.quantity = 9: the gold trace of problem \d+ states \d values; write less"):
        scores.gold_labels(rows, 9)


def test_behaviours_of_samples_are_metrics_of_the_record_and_of_tables(inputs: dict[str, Path], tmp_path: Path) -> None:
    spec = EvaluateSpec(num_samples=3, max_completion_length=12, behaviours=True)
    found = json.loads(json.dumps(sampling.evaluate_model(spec, inputs, tmp_path, Run())))
    record = {"spec": json.loads(spec.model_dump_json()), "metrics": found}
    assert not list(check._evaluation(tmp_path, record, inputs))
    table = pq.read_table(tmp_path / "samples.parquet")
    for name in ("plans", "retrievals", "rechecks", "backtracks"):
        mean = np.mean(table[name].to_pylist())
        assert found["all"][name] == pytest.approx(mean, abs=1e-5)
        assert prompt_scores(count_samples(tmp_path), name).mean() == pytest.approx(mean, abs=1e-5)
