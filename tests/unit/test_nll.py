"""Negative log-likelihood of gold solutions: against transformers' own loss, against a hand-worked case, and in the stage."""

from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
import world

from interplay.core.execution import Run
from interplay.data import corpus, sets
from interplay.evaluate import sampling, scores
from interplay.evaluate.spec import EvaluateSpec
from interplay.model import folder

SPEC = EvaluateSpec(num_samples=2, max_completion_length=4, nll=True, errors=True)


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    results = tmp_path_factory.mktemp("results")
    return {"model": world.model(results, "m" * 12), "data": world.problem_set(results, "d" * 12, 13, split="test")}


def test_it_is_the_loss_that_transformers_computes(inputs: dict[str, Path]) -> None:
    transformers = pytest.importorskip("transformers")
    model = transformers.AutoModelForCausalLM.from_pretrained(inputs["model"] / "model").eval()
    tokens = transformers.AutoTokenizer.from_pretrained(inputs["model"] / "model")
    found = scores.nll_of_set(SPEC, inputs["model"], inputs["data"], Run(micro_batch_tokens=200))
    for row, number in zip(sets.load_pool([inputs["data"]]).rows, found, strict=True):
        prompt = tokens.encode(row.prompt, add_special_tokens=False)
        solution = [*tokens.encode(row.solution, add_special_tokens=False), tokens.eos_token_id]
        labels = torch.tensor([[-100] * len(prompt) + solution])
        with torch.no_grad():
            loss = model(input_ids=torch.tensor([prompt + solution]), labels=labels).loss
        assert number == pytest.approx(float(loss), abs=1e-5)


def test_a_model_that_tells_nothing_apart_needs_the_logarithm_of_its_vocabulary(inputs: dict[str, Path]) -> None:
    decoder = folder.load_decoder(inputs["model"] / "model")
    with torch.no_grad():
        decoder.head().zero_()
    problems = corpus.encode_problems(inputs["data"], inputs["model"])
    found = scores.nll_by_problem(decoder, problems, 1000, torch.float32)
    assert found == pytest.approx(np.full(13, np.log(decoder.vocab_size)), abs=1e-6)


def test_solution_tokens_alone_count_and_each_problem_is_a_mean_of_its_own(inputs: dict[str, Path]) -> None:
    """A model whose logits are 1 for token 5 and 0 for the others, at every place."""
    decoder = folder.load_decoder(inputs["model"] / "model")
    logits = torch.zeros(decoder.vocab_size)
    logits[5] = 1.0
    decoder.logits = lambda hidden: logits.expand(*hidden.shape[:-1], -1)  # type: ignore[method-assign]
    # Prompts 5 5 and 2, solutions 5 3 and 5 5 5 5: whatever the prompts hold does not count.
    problems = corpus.Encoded(np.array([5, 5, 5, 3, 2, 5, 5, 5, 5], np.uint32), np.array([4, 5]), np.array([2, 1]))
    rest = np.log(np.e + decoder.vocab_size - 1)
    for tokens in (1, 10, 100):
        assert scores.nll_by_problem(decoder, problems, tokens, torch.float32) == pytest.approx(
            [rest - 0.5, rest - 1.0], abs=1e-6
        )


def test_it_does_not_depend_on_which_problems_share_a_batch(inputs: dict[str, Path]) -> None:
    decoder, problems = folder.load_decoder(inputs["model"] / "model"), corpus.encode_problems(inputs["data"], inputs["model"])
    alone, together = (scores.nll_by_problem(decoder, problems, tokens, torch.float32) for tokens in (1, 10_000))
    assert alone == pytest.approx(together, abs=1e-5)


def test_a_problem_whose_solution_has_no_token_has_none() -> None:
    decoder = folder.init_decoder(world.SHAPE, 8, 0)
    problems = corpus.Encoded(np.array([2, 3, 2, 4], np.uint32), np.array([2, 2]), np.array([2, 1]))
    assert np.isnan(scores.nll_by_problem(decoder, problems, 100, torch.float32)).tolist() == [True, False]


def test_the_stage_writes_likelihoods_and_classes_beside_the_counts_and_only_where_asked(
    inputs: dict[str, Path], tmp_path: Path
) -> None:
    plain = SPEC.model_copy(update={"nll": False, "errors": False})
    with_them, without = (
        sampling.evaluate_model(spec, inputs, tmp_path / name, Run()) for spec, name in ((SPEC, "a"), (plain, "b"))
    )
    full, bare = (pq.read_table(tmp_path / name / "prompts.parquet") for name in "ab")
    assert bare.column_names == ["index", "band", "op", "mode", "n", "strict", "answer", "score"]
    assert full.select(bare.column_names).equals(bare)
    assert (tmp_path / "a/samples.parquet").read_bytes() == (tmp_path / "b/samples.parquet").read_bytes()
    expected = scores.nll_of_set(SPEC, inputs["model"], inputs["data"], Run())
    assert full["nll"].to_pylist() == expected.tolist()
    assert with_them["all"].pop("nll") == pytest.approx(expected.mean(), rel=1e-6)
    assert "nll" not in without["all"]
    assert with_them["all"] == without["all"]
    classes = [name for name in full.column_names if name.startswith("error_")]
    assert [sum(row) for row in zip(*(full[name].to_pylist() for name in classes), strict=True)] == [2] * 13
    shares = {name.removeprefix("error_"): sum(full[name].to_pylist()) / 26 for name in classes}
    assert shares == pytest.approx(without["all"]["errors"], rel=1e-6)
