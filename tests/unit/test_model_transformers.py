"""Models that our decoder lacks, computed by transformers: log-probabilities, training, folders, engines."""

import importlib.util
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import world
from comma_runs import spec_of
from pydantic import ValidationError
from test_prefer import pair_set
from torch.nn.functional import log_softmax
from transformers import (
    AutoModelForCausalLM,
    AutoModelForSequenceClassification,
    AutoTokenizer,
    LlamaConfig,
    MistralConfig,
    MixtralConfig,
    Qwen2Config,
    Qwen3MoeConfig,
)

from interplay.core import metrics
from interplay.core.execution import Run
from interplay.core.metrics import read
from interplay.core.model import UserError
from interplay.data import corpus, tokenizer
from interplay.data.batches import Sequences, batch_of_sequences, pad_completions
from interplay.data.spec import CorpusSpec
from interplay.evaluate.sampling import evaluate_model
from interplay.evaluate.spec import EvaluateSpec
from interplay.model import device, folder, heads
from interplay.model.shared_prompts import hidden_states, token_logps
from interplay.model.spec import Lora
from interplay.rl.loop import train_policy
from interplay.rl.request_spec import FixedAllocation
from interplay.rl.spec import RLSpec
from interplay.rollout.engine import Request, Sampling, engine
from interplay.run.graph import check_external
from interplay.study.plan import Stage
from interplay.train.lm import token_losses, train_language_model
from interplay.train.prefer import train_preferences
from interplay.train.reward_model import train_reward_model
from interplay.train.spec import PreferSpec, RewardModelSpec, SftSpec

SIZES: dict[str, Any] = {
    "vocab_size": 60,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "initializer_range": 0.3,
    "pad_token_id": 0,
    "eos_token_id": 1,
}
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 500000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 16,
}
YARN = {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "original_max_position_embeddings": 16}
EXPERTS: dict[str, Any] = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 24}
CONFIGS = {
    "Llama-3.1": LlamaConfig(rope_parameters=LLAMA3, max_position_embeddings=128, **SIZES),
    "Qwen2.5 with YaRN": Qwen2Config(rope_parameters=YARN, max_position_embeddings=64, **SIZES),
    "Mistral with a window": MistralConfig(sliding_window=6, **SIZES),
    "Mixtral": MixtralConfig(num_local_experts=4, num_experts_per_tok=2, **SIZES),
    "Qwen3 with experts": Qwen3MoeConfig(tie_word_embeddings=True, **EXPERTS, **SIZES),
}
PROMPTS = [[3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8]] * 2 + [[2, 7, 1]]
COMPLETIONS = [[8, 2, 8, 1, 8], [7], [9, 7, 9, 3]]


@pytest.fixture(params=CONFIGS)
def source(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    torch.manual_seed(0)
    AutoModelForCausalLM.from_config(CONFIGS[request.param]).save_pretrained(tmp_path / "source")
    return tmp_path / "source"


def expected(model: Any, prompt: list[int], completion: list[int]) -> torch.Tensor:
    ids = torch.tensor([prompt + completion])
    logs = log_softmax(model(input_ids=ids, use_cache=False).logits[0].float(), -1)
    return logs[len(prompt) - 1 : -1].gather(1, torch.tensor(completion)[:, None])[:, 0]


@pytest.mark.parametrize("checkpointing", [False, True])
def test_log_probabilities_and_gradients_are_those_of_transformers(source: Path, checkpointing: bool) -> None:
    model = AutoModelForCausalLM.from_pretrained(source, dtype=torch.float32, attn_implementation="eager").eval()
    decoder = device.place_decoder(folder.load_decoder(source), Run(gradient_checkpointing=checkpointing))
    tokens, lengths = pad_completions(COMPLETIONS, torch.device("cpu"))
    found = token_logps(decoder, PROMPTS, tokens, lengths, torch.float32)
    each = [expected(model, prompt, completion) for prompt, completion in zip(PROMPTS, COMPLETIONS, strict=True)]
    for mine, theirs in zip(found, each, strict=True):
        torch.testing.assert_close(mine[: len(theirs)], theirs, atol=1e-5, rtol=1e-5)
        assert not mine[len(theirs) :].any()
    found.sum().backward()
    torch.cat(each).sum().backward()
    named = dict(model.named_parameters())
    for name, parameter in decoder.named_parameters():
        torch.testing.assert_close(parameter.grad, named[name.removeprefix("hf.")].grad, atol=2e-4, rtol=1e-3)


def test_the_loss_of_a_batch_and_states_behind_prompts_are_theirs_too(source: Path) -> None:
    decoder = folder.load_decoder(source)
    texts = [p + c for p, c in zip(PROMPTS, COMPLETIONS, strict=True)]
    bears = [[False] * len(p) + [True] * len(c) for p, c in zip(PROMPTS, COMPLETIONS, strict=True)]
    lengths = torch.tensor([len(text) for text in texts]).numpy()
    flat = np.concatenate(texts), lengths, np.concatenate(bears)
    batch = batch_of_sequences(Sequences(*flat), torch.device("cpu"))
    losses = token_losses(decoder, batch, torch.float32)
    tokens, counts = pad_completions(COMPLETIONS, torch.device("cpu"))
    logps = token_logps(decoder, PROMPTS, tokens, counts, torch.float32)
    torch.testing.assert_close(losses.sum(), -logps.sum(), atol=1e-4, rtol=1e-5)
    prompts = torch.tensor([PROMPTS[0], PROMPTS[2] + [0] * 9])
    states = hidden_states(decoder, prompts, torch.tensor([12, 3]), torch.tensor([0, 0, 1]), tokens, torch.float32)
    logs = log_softmax(decoder.logits(states), -1).gather(2, tokens[..., None])[..., 0]
    torch.testing.assert_close(logs[0], logps[0], atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(logs[2, :4], logps[2, :4], atol=1e-4, rtol=1e-4)


def test_the_engine_hf_samples_what_training_scores(source: Path) -> None:
    decoder = folder.load_decoder(source)
    requests = [Request(PROMPTS[0], 0, 0, 2), Request(PROMPTS[2], 1, 0, 1)]
    made = engine("hf", decoder, Run()).generate(requests, Sampling(1.0, 1.0, 0, 5, 0, None, 0))
    logps = token_logps(decoder, PROMPTS, made.tokens, torch.tensor([5, 5, 5]), torch.float32)
    torch.testing.assert_close(logps, made.logprobs, atol=2e-5, rtol=1e-4)
    for name in ("native", "vllm"):
        with pytest.raises(UserError, match="write engine: hf"):
            engine(name, decoder, Run())


def test_a_folder_that_is_saved_loads_in_transformers(source: Path, tmp_path: Path) -> None:
    tokenizer = world.model(tmp_path, "a" * 12) / "model"
    decoder = folder.load_decoder(source)
    with torch.no_grad():
        for parameter in decoder.parameters():
            parameter.mul_(1.01)
    folder.save_decoder(decoder, tmp_path / "saved", tokenizer)
    again = AutoModelForCausalLM.from_pretrained(tmp_path / "saved", dtype=torch.float32)
    AutoTokenizer.from_pretrained(tmp_path / "saved")
    for (name, mine), (other, theirs) in zip(decoder.named_parameters(), again.named_parameters(), strict=True):
        assert name == f"hf.{other}"
        assert torch.equal(mine, theirs)
    first = (tmp_path / "saved" / "model.safetensors").read_bytes()
    folder.save_decoder(folder.load_decoder(tmp_path / "saved"), tmp_path / "twice", tokenizer)
    assert (tmp_path / "twice" / "model.safetensors").read_bytes() == first


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A Mixtral that knows the task's characters, with problems and pairs."""
    results = tmp_path_factory.mktemp("results")
    init = world.model(results, "m" * 12)
    torch.manual_seed(0)
    vocabulary = tokenizer.load(init).get_vocab_size()
    config = MixtralConfig(num_local_experts=4, num_experts_per_tok=2, **{**SIZES, "vocab_size": vocabulary})
    AutoModelForCausalLM.from_config(config).save_pretrained(init / "model")
    return {"init": init, "data.0": world.problem_set(results, "a" * 12, 40), "pairs": pair_set(results, "b" * 12)}


def test_rl_trains_what_it_sampled(inputs: dict[str, Path], tmp_path: Path) -> None:
    spec = spec_of(3, allocation=FixedAllocation(num_generations=4)).model_copy(update={"engine": "hf"})
    record = train_policy(spec, inputs, tmp_path / "rl", Run(save_minutes=0.0))
    lines = read(tmp_path / "rl")
    assert record["completions"] > 0
    assert max(line["sampling/sampling_logp_difference/max"] for line in lines) < 1e-4
    before, after = (folder.load_decoder(place / "model") for place in (inputs["init"], tmp_path / "rl"))
    assert isinstance(after, folder.TransformersModel)
    moved = [not torch.equal(a, b) for a, b in zip(before.parameters(), after.parameters(), strict=True)]
    assert sum(moved) > len(moved) // 2
    with pytest.raises(UserError, match="write engine: hf"):
        train_policy(spec.model_copy(update={"engine": "native"}), inputs, tmp_path / "native", Run())


def test_preferences_are_learnt_with_a_frozen_reference(inputs: dict[str, Path], tmp_path: Path) -> None:
    spec = PreferSpec(mix=[1.0], steps=8, pairs_per_step=8, max_length=128)
    given = {"init": inputs["init"], "data.0": inputs["pairs"]}
    train_preferences(spec, given, tmp_path / "dpo", Run(gradient_checkpointing=True))
    lines = read(tmp_path / "dpo")
    assert abs(lines[0]["loss"] - math.log(2)) < 1e-4
    assert lines[-1]["loss"] < lines[0]["loss"]
    with pytest.raises(UserError, match="write float32 or bfloat16"):
        train_preferences(spec.model_copy(update={"dtype": "int8"}), given, tmp_path / "int8", Run())


def test_a_reward_model_is_the_sequence_classifier_that_transformers_loads(inputs: dict[str, Path], tmp_path: Path) -> None:
    spec = RewardModelSpec(mix=[1.0], steps=4, pairs_per_step=8, max_length=128)
    given = {"init": inputs["init"], "data.0": inputs["pairs"], "validation": inputs["pairs"]}
    train_reward_model(spec, given, tmp_path / "rm", Run())
    model: Any = AutoModelForSequenceClassification.from_pretrained(tmp_path / "rm" / "model", dtype=torch.float32)
    tokens = AutoTokenizer.from_pretrained(tmp_path / "rm" / "model")("a=b+1", return_tensors="pt")
    assert model.config.num_labels == 1
    assert torch.equal(heads.load_reward_model(tmp_path / "rm" / "model").score, model.score.weight)
    assert torch.isfinite(model(**tokens).logits).all()
    assert any(
        not torch.equal(mine, theirs)
        for mine, theirs in zip(
            model.base_model.parameters(),
            AutoModelForCausalLM.from_pretrained(inputs["init"] / "model").base_model.parameters(),
            strict=True,
        )
    )


# Adapters.


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A model that our decoder computes, with problems and pairs."""
    results = tmp_path_factory.mktemp("plain")
    given = {"init": world.model(results, "m" * 12), "data.0": world.problem_set(results, "a" * 12, 40)}
    return {**given, "pairs": pair_set(results, "b" * 12)}


def test_adapters_start_as_nothing_and_are_merged_into_what_is_written(plain: dict[str, Path], tmp_path: Path) -> None:
    pytest.importorskip("peft")
    base, tokens = folder.load_decoder(plain["init"] / "model"), torch.tensor([[3, 1, 4, 1, 5]])
    adapted = folder.load_decoder(plain["init"] / "model", Lora(r=2), seed=0)
    states = adapted.hidden(tokens, torch.arange(5)[None])
    torch.testing.assert_close(states, base.hidden(tokens, torch.arange(5)[None]), atol=1e-5, rtol=1e-5)
    trained = [name for name, parameter in adapted.named_parameters() if parameter.requires_grad]
    assert trained
    assert all(".lora_" in name for name in trained)
    again = folder.load_decoder(plain["init"] / "model", Lora(r=2), seed=0)
    assert all(map(torch.equal, adapted.parameters(), again.parameters()))
    with torch.no_grad():
        for parameter in adapted.parameters():
            if parameter.requires_grad:
                parameter.add_(0.05)
    folder.save_decoder(adapted, tmp_path, plain["init"] / "tokenizer")
    merged = folder.load_decoder(tmp_path)
    assert not isinstance(merged, folder.TransformersModel)
    moved = adapted.hidden(tokens, torch.arange(5)[None])
    assert (moved - states).abs().max() > 1e-3
    torch.testing.assert_close(merged.hidden(tokens, torch.arange(5)[None]), moved, atol=1e-4, rtol=1e-4)


def test_rl_trains_adapters_and_samples_with_them(plain: dict[str, Path], tmp_path: Path) -> None:
    pytest.importorskip("peft")
    spec = spec_of(3, allocation=FixedAllocation(num_generations=4))
    spec = RLSpec(**{**spec.model_dump(), "engine": "hf", "lora": {"r": 2, "targets": ["q_proj", "down_proj"]}})
    train_policy(spec, plain, tmp_path / "rl", Run(save_minutes=0.0))
    assert max(line["sampling/sampling_logp_difference/max"] for line in read(tmp_path / "rl")) < 1e-4
    before, after = (dict(folder.load_decoder(place / "model").named_parameters()) for place in (plain["init"], tmp_path / "rl"))
    moved = {name.split(".")[-2] for name, value in after.items() if not torch.equal(value, before[name])}
    assert moved == {"q_proj", "down_proj"}
    assert (
        torch.linalg.matrix_rank(
            after["model.layers.0.self_attn.q_proj.weight"] - before["model.layers.0.self_attn.q_proj.weight"], atol=1e-5
        )
        <= 2
    )


@pytest.mark.parametrize(("source", "lora"), [("inputs", None), ("plain", {"r": 2, "targets": ["q_proj", "v_proj"]})])
def test_sft_and_evaluations_compute_both(source: str, lora: Any, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    if lora:
        pytest.importorskip("peft")
    given = request.getfixturevalue(source)
    roles = {"tokenizer": given["init"], "data.0": given["data.0"]}
    corpus.build_corpus(CorpusSpec(mix=[1.0], sequence_length=128), roles, tmp_path / "corpus", Run())
    roles = {"corpus": tmp_path / "corpus", "init": given["init"], "validation": given["data.0"]}
    train_language_model(SftSpec(tokens=2000, batch_tokens=256, lora=lora), roles, tmp_path / "sft", Run())
    losses = [line["loss"] for line in read(tmp_path / "sft") if "loss" in line]
    assert losses[-1] < losses[0]
    spec = EvaluateSpec(engine="hf", num_samples=2, max_completion_length=8)
    record = evaluate_model(spec, {"model": tmp_path / "sft", "data": given["data.0"]}, tmp_path / "samples", Run())
    assert record["all"]["n"] == 40


def test_preferences_train_adapters_against_the_base(plain: dict[str, Path], tmp_path: Path) -> None:
    pytest.importorskip("peft")
    rate = {"learning_rate": 1e-2}
    spec = PreferSpec(mix=[1.0], steps=8, pairs_per_step=8, max_length=128, lora={"r": 4, "dropout": 0.1}, optimizer=rate)
    train_preferences(spec, {"init": plain["init"], "data.0": plain["pairs"]}, tmp_path / "dpo", Run())
    lines = read(tmp_path / "dpo")
    assert abs(lines[0]["loss"] - math.log(2)) < 1e-3
    assert lines[-1]["loss"] < lines[0]["loss"]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"engine": "native"}, "does not sample from a model with adapters"),
        ({"engine": "hf", "lora": {"dropout": 0.1}}, "ratios would compare passes that differ by chance; write 0"),
        ({"engine": "hf", "dtype": "int8"}, "write"),
    ],
)
def test_what_adapters_do_not_go_with_is_refused(given: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        RLSpec(**{**spec_of(1).model_dump(), "lora": {}, **given})


def test_targets_that_are_not_there_are_named(plain: dict[str, Path]) -> None:
    pytest.importorskip("peft")
    with pytest.raises(UserError, match=r"lora.targets = \['q_porj'\]"):
        folder.load_decoder(plain["init"] / "model", Lora(targets=["q_porj"]))


def test_where_peft_is_not_installed_no_job_starts_and_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    found = importlib.util.find_spec
    stage = Stage.make("sft", SftSpec(tokens=2000, batch_tokens=256, lora={}), {}, Run(), "sft")
    monkeypatch.setattr(metrics.importlib.util, "find_spec", lambda name: None if name == "peft" else found(name))
    with pytest.raises(UserError, match=r"lora: peft is not installed here; pip install .*\[lora\]"):
        check_external([stage])
