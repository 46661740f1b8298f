"""Costs: parameters as a real decoder counts them, and tokens, rollouts and FLOPs by hand."""

import pytest
import torch

from interplay.core.digest import canonical
from interplay.data.spec import ProblemsSpec, TokenizerSpec
from interplay.data.tokenizer import character_tokenizer
from interplay.evaluate.spec import EvaluateSpec
from interplay.kinds.formulas import Cost
from interplay.kinds.stages import paper_tokens, planned_costs, realised_cost, shape_size, vocabulary_size
from interplay.model.decoder import Decoder
from interplay.model.spec import ARCHITECTURES, Shape, config_size
from interplay.rl.loss_spec import ClippedLoss
from interplay.rl.spec import Method, RLSpec
from interplay.tasks.families import task_family
from interplay.tasks.op_dag.spec import OpDag
from interplay.train.spec import MidtrainSpec, PretrainSpec

SHAPE = Shape(hidden_size=8, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, head_dim=4, intermediate_size=12)
N = shape_size(canonical(SHAPE), 50).parameters


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
    assert shape_size(canonical(shape), 37).parameters == sum(p.numel() for p in decoder.parameters())


CONFIG = {
    **{"hidden_size": 64, "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2},
    **{"intermediate_size": 96, "vocab_size": 101, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2},
}
EXPERTS = {"num_experts_per_tok": 2, "moe_intermediate_size": 32}
CONFIGS = {
    "llama": {"attention_bias": True, "mlp_bias": True},
    "mistral": {"head_dim": 8},
    "phi3": {},
    "qwen2": {},
    "qwen3": {"head_dim": 32},
    "mixtral": {"num_local_experts": 4, "num_experts_per_tok": 2},
    "olmoe": {"num_experts": 4, "num_experts_per_tok": 2},
    "qwen2_moe": {"num_experts": 4, **EXPERTS, "shared_expert_intermediate_size": 48, "decoder_sparse_step": 2},
    "qwen3_moe": {"num_experts": 4, **EXPERTS, "head_dim": 32, "mlp_only_layers": [0]},
}


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("name", sorted(ARCHITECTURES))
def test_parameters_of_a_config_are_those_of_transformers_class(name: str, tied: bool) -> None:
    from transformers import AutoConfig, AutoModelForCausalLM

    config = AutoConfig.for_model(name, **CONFIG, **CONFIGS[name], tie_word_embeddings=tied)
    with torch.device("meta"):
        built = AutoModelForCausalLM.from_config(config)
    assert config_size({**config.to_dict(), "model_type": name}).parameters == sum(p.numel() for p in built.parameters())


def test_of_a_mixture_the_experts_of_a_token_are_counted() -> None:
    """Mixtral 8x7B: 46.7 billion parameters, 12.9 billion of them for each token (arXiv:2401.04088)."""
    numbers = {"hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8}
    mixtral = {"model_type": "mixtral", **numbers, "intermediate_size": 14336, "vocab_size": 32000}
    size = config_size({**mixtral, "num_local_experts": 8, "num_experts_per_tok": 2})
    assert (round(size.parameters / 1e9, 1), round(size.active / 1e9, 1)) == (46.7, 12.9)
    source = {"kind": "source", "spec": {}, "deps": {}, "config": {**mixtral, "num_local_experts": 8, "num_experts_per_tok": 2}}
    found = planned_costs({"s": source, "m": line("midtrain", MidtrainSpec(tokens=6000), init="s")})["m"]
    assert (found.parameters, found.flops) == (size.parameters, 6 * size.active * 6000)


def test_an_architecture_that_is_not_known_has_no_size() -> None:
    with pytest.raises(ValueError, match="model_type = 'mamba': its parameters are not counted; known: llama"):
        config_size({"model_type": "mamba"})
    with pytest.raises(ValueError, match="num_hidden_layers = None: must be a number"):
        config_size({"model_type": "llama", "hidden_size": 4})
    source = {"kind": "source", "spec": {}, "deps": {}, "config": {"model_type": "mamba"}}
    assert planned_costs({"s": source})["s"].parameters is None


@pytest.mark.parametrize("letters", [10, 26, 52])
def test_the_vocabulary_is_that_of_the_tokenizer(letters: int) -> None:
    task = OpDag(letters=letters, distractors=(0, 0))
    made = character_tokenizer(task_family(task).alphabet(task)).get_vocab_size()
    assert vocabulary_size(canonical(TokenizerSpec(task=task))) == made


def test_a_plan_costs_six_n_a_token_trained_on_and_two_n_a_token_sampled() -> None:
    found = planned_costs(PLAN)
    assert found["p"] == found["t"] == Cost()
    assert found["base"] == Cost(tokens=10000, flops=6 * N * 10000, parameters=N)
    assert found["mid"] == Cost(tokens=6000, flops=6 * N * 6000, parameters=N)
    assert found["rl"] == Cost(tokens=1600, sampled=1600, rollouts=160, flops=8 * N * 1600, parameters=N)
    assert found["eval"] == Cost(sampled=420, rollouts=21, flops=2 * N * 420, parameters=N)


def test_a_reference_and_further_passes_are_charged() -> None:
    plain, reference, passes = (
        planned_costs({**PLAN, "rl": line("rl", rl(**loss), init="base")})["rl"]
        for loss in ({}, {"beta": 0.1}, {"num_iterations": 2})
    )
    assert (reference.flops or 0) - (plain.flops or 0) == 2 * N * plain.sampled
    assert passes.tokens == 2 * plain.tokens
    assert passes.flops == N * plain.sampled * (6 * 2 + 2 + 2), "two updates, sampling, and scoring before the first update"


def test_a_source_is_unknown_until_its_record_tells_its_size() -> None:
    source = {"kind": "source", "spec": {}, "deps": {}}
    tuned = line("midtrain", MidtrainSpec(tokens=6000), init="s")
    assert planned_costs({"s": source, "m": tuned})["m"] == Cost(tokens=6000, flops=None, parameters=None)
    made = {**source, "metrics": {"parameters": 11}}
    assert planned_costs({"s": made, "m": tuned})["m"].flops == 6 * 11 * 6000


def test_realised_costs_are_those_of_the_records() -> None:
    trained = {**PLAN["mid"], "metrics": {"tokens": 6100, "parameters": N}}
    assert realised_cost(trained, None) == Cost(tokens=6100, flops=6 * N * 6100, parameters=N)
    learned = {**PLAN["rl"], "metrics": {"completions": 160, "completion_tokens": 900, "prompt_tokens": 800}}
    prompts = 100  # 800 in groups of eight, whose prompt passes once
    assert realised_cost(learned, N) == Cost(
        tokens=900 + prompts, sampled=900, rollouts=160, flops=8 * N * (900 + prompts), parameters=N
    )
    sampled = {**PLAN["eval"], "metrics": {"all": {"n": 7, "length": 5.5}}}
    assert realised_cost(sampled, N) == Cost(sampled=116, rollouts=21, flops=2 * N * 116, parameters=N)


def test_the_paper_charges_rl_five_thirds_of_the_capped_tokens() -> None:
    """arXiv:2512.07783: 50 steps of 1,024 prompts with 6 rollouts of at most 2,048 tokens are 1.05 B tokens."""
    spec = canonical(rl()) | {"steps": 50, "prompts_per_step": 1024, "max_completion_length": 2048}
    spec["method"]["allocation"]["num_generations"] = 6
    assert paper_tokens("rl", spec) == pytest.approx(1.05e9, rel=0.01)
    assert paper_tokens("sft", canonical(MidtrainSpec(tokens=6000))) == 6000
    assert paper_tokens("evaluate", canonical(EvaluateSpec())) == 0
