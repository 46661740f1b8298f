"""Costs: parameters as a real decoder counts them, and tokens, rollouts and FLOPs by hand."""

import pytest

from interplay.core.digest import canonical
from interplay.data.spec import ProblemsSpec, TokenizerSpec
from interplay.data.tokenizer import character_tokenizer
from interplay.evaluate.spec import EvaluateSpec
from interplay.kinds.formulas import Cost
from interplay.kinds.stages import costs, paper_tokens, realised, shape_parameters, vocabulary
from interplay.model.decoder import Decoder
from interplay.model.spec import Shape
from interplay.rl.loss_spec import ClippedLoss
from interplay.rl.spec import Method, RLSpec
from interplay.tasks.family import task_family
from interplay.tasks.op_dag.spec import OpDag
from interplay.train.spec import MidtrainSpec, PretrainSpec

SHAPE = Shape(hidden_size=8, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, head_dim=4, intermediate_size=12)
N = shape_parameters(canonical(SHAPE), 50)


def line(kind: str, spec: object, **deps: str) -> dict:
    return {"kind": kind, "spec": canonical(spec), "deps": deps}


def rl(**loss: object) -> RLSpec:
    method = Method(paper="p", loss=ClippedLoss(**loss))
    return RLSpec(method=method, mix=[1.0], steps=5, prompts_per_step=4, max_completion_length=10)


PROBLEMS = ProblemsSpec(task=OpDag(), bands={"id": {2: 1.0}}, shares={"id": 1.0}, size=7, split="test")
PLAN = {
    "t": line("tokenizer", TokenizerSpec(task=OpDag())),
    "p": line("problems", PROBLEMS),
    "base": line("pretrain", PretrainSpec(model=SHAPE, tokens=10000), tokenizer="t", corpus="c"),
    "mid": line("midtrain", MidtrainSpec(tokens=6000), init="base", corpus="c"),
    "rl": line("rl", rl(), init="mid@7", **{"data.0": "p"}),
    "eval": line("evaluate", EvaluateSpec(num_samples=3, max_completion_length=20), model="rl", data="p"),
}


@pytest.mark.parametrize("architecture", ["llama", "qwen2", "qwen3"])
@pytest.mark.parametrize("tied", [True, False])
def test_parameters_are_those_of_the_decoder(architecture: str, tied: bool) -> None:
    shape = SHAPE.model_copy(update={"architecture": architecture, "tie_word_embeddings": tied})
    decoder = Decoder(shape, 37)
    assert shape_parameters(canonical(shape), 37) == sum(p.numel() for p in decoder.parameters())


@pytest.mark.parametrize("letters", [10, 26, 52])
def test_the_vocabulary_is_that_of_the_tokenizer(letters: int) -> None:
    task = OpDag(letters=letters, distractors=(0, 0))
    made = character_tokenizer(task_family(task).alphabet(task)).get_vocab_size()
    assert vocabulary(canonical(TokenizerSpec(task=task))) == made


def test_a_plan_costs_six_n_a_token_trained_on_and_two_n_a_token_sampled() -> None:
    found = costs(PLAN)
    assert found["p"] == found["t"] == Cost()
    assert found["base"] == Cost(tokens=10000, flops=6 * N * 10000, parameters=N)
    assert found["mid"] == Cost(tokens=6000, flops=6 * N * 6000, parameters=N)
    assert found["rl"] == Cost(tokens=1600, sampled=1600, rollouts=160, flops=8 * N * 1600, parameters=N)
    assert found["eval"] == Cost(sampled=420, rollouts=21, flops=2 * N * 420, parameters=N)


def test_a_reference_and_further_passes_are_charged() -> None:
    plain, reference, passes = (
        costs({**PLAN, "rl": line("rl", rl(**loss), init="base")})["rl"] for loss in ({}, {"beta": 0.1}, {"num_iterations": 2})
    )
    assert (reference.flops or 0) - (plain.flops or 0) == 2 * N * plain.sampled
    assert passes.tokens == 2 * plain.tokens
    assert passes.flops == N * plain.sampled * (6 * 2 + 2 + 2), "two updates, sampling, and scoring before the first update"


def test_a_source_is_unknown_until_its_record_tells_its_size() -> None:
    source = {"kind": "source", "spec": {}, "deps": {}}
    tuned = line("midtrain", MidtrainSpec(tokens=6000), init="s")
    assert costs({"s": source, "m": tuned})["m"] == Cost(tokens=6000, flops=None, parameters=None)
    made = {**source, "metrics": {"parameters": 11}}
    assert costs({"s": made, "m": tuned})["m"].flops == 6 * 11 * 6000


def test_realised_costs_are_those_of_the_records() -> None:
    trained = {**PLAN["mid"], "metrics": {"tokens": 6100, "parameters": N}}
    assert realised(trained, None) == Cost(tokens=6100, flops=6 * N * 6100, parameters=N)
    learned = {**PLAN["rl"], "metrics": {"completions": 160, "completion_tokens": 900, "prompt_tokens": 800}}
    prompts = 100  # 800 in groups of eight, whose prompt passes once
    assert realised(learned, N) == Cost(
        tokens=900 + prompts, sampled=900, rollouts=160, flops=8 * N * (900 + prompts), parameters=N
    )
    sampled = {**PLAN["eval"], "metrics": {"all": {"n": 7, "length": 5.5}}}
    assert realised(sampled, N) == Cost(sampled=116, rollouts=21, flops=2 * N * 116, parameters=N)


def test_the_paper_charges_rl_five_thirds_of_the_capped_tokens() -> None:
    """arXiv:2512.07783: 50 steps of 1,024 prompts with 6 rollouts of at most 2,048 tokens are 1.05 B tokens."""
    spec = canonical(rl()) | {"steps": 50, "prompts_per_step": 1024, "max_completion_length": 2048}
    spec["method"]["allocation"]["num_generations"] = 6
    assert paper_tokens("rl", spec) == pytest.approx(1.05e9, rel=0.01)
    assert paper_tokens("sft", canonical(MidtrainSpec(tokens=6000))) == 6000
    assert paper_tokens("evaluate", canonical(EvaluateSpec())) == 0
