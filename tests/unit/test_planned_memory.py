"""Memory of stages as planned: what autograd keeps, what is refused with the setting that fits, what a cluster is asked for."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from command_line import interplay
from lab import Lab, of_kind

from interplay.core.execution import Run
from interplay.core.model import UserError
from interplay.data.batches import Sequences, batch_of_sequences
from interplay.evaluate.sampling import SHARD_BATCHES
from interplay.evaluate.spec import EvaluateSpec
from interplay.kernels import layers
from interplay.kinds import formulas, memory
from interplay.kinds.stages import peak_memories, shape_size
from interplay.model.attention import visible_blocks
from interplay.model.decoder import MOST_LOGITS, Decoder
from interplay.model.shared_prompts import predicting_states
from interplay.model.spec import Load, Shape
from interplay.results import estimate, state, telemetry
from interplay.rl.spec import RLSpec
from interplay.rollout.spec import RetryEpisode, SeatsEpisode
from interplay.run import graph
from interplay.study.plan import Plan

VOCAB, ROWS, LENGTH = 64, 4, 96
GROUPS, COUNT, PROMPT, OWN = 3, 4, 40, 33


def shape(architecture: str, layers: int) -> Shape:
    return Shape(
        architecture=architecture,  # type: ignore[arg-type]
        hidden_size=256,
        num_hidden_layers=layers,
        num_attention_heads=8,
        num_key_value_heads=4,
        head_dim=32,
        intermediate_size=512,
    )


def saved_bytes(route: str, architecture: str, layers: int) -> float:
    """Bytes of all tensors that a pass keeps for its gradient, parameters left out."""
    model, found = Decoder(shape(architecture, layers), VOCAB), dict[int, torch.Tensor]()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, 0.0, 0.02)
    own = {parameter.untyped_storage().data_ptr() for parameter in model.parameters()}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        found[tensor.untyped_storage().data_ptr()] = tensor
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        if route == "training":
            from interplay.train import lm

            places = np.arange(ROWS * LENGTH)
            sequences = Sequences(places % VOCAB, np.full(ROWS, LENGTH), places % LENGTH > 0)
            kept = lm.token_losses(model, batch_of_sequences(sequences, torch.device("cpu")), torch.float32)
        else:
            prompts = [[number + 1] * PROMPT for number in range(GROUPS) for _ in range(COUNT)]
            tokens = torch.zeros(GROUPS * COUNT, OWN, dtype=torch.int64)
            lengths = torch.full((len(tokens),), OWN)
            kept, _ = predicting_states(model, prompts, tokens, lengths, torch.float32)
    assert kept.requires_grad
    return float(sum(tensor.untyped_storage().nbytes() for pointer, tensor in found.items() if pointer not in own))


@pytest.mark.parametrize("architecture", ["llama", "qwen3"])
@pytest.mark.parametrize("route", ["training", "rl"])
def test_a_layer_keeps_what_the_formula_says(route: str, architecture: str) -> None:
    def said(layers: int) -> float:
        size = shape_size(shape(architecture, layers).model_dump(), VOCAB)
        load = Load({"dtype": "float32"}, Run(), size, LENGTH)
        later = OWN - 1  # the last token predicts nothing
        rows = GROUPS * COUNT
        tokens = GROUPS * PROMPT + rows * later
        passed = memory.Pass(ROWS * LENGTH, ROWS * LENGTH, ROWS * LENGTH**2)
        if route == "rl":
            pairs = GROUPS * PROMPT**2 + rows * later * (PROMPT + later)
            passed = memory.Pass(tokens, rows * OWN, pairs, GROUPS * PROMPT + rows * (PROMPT + later))
        return memory.kept_activations(load, passed) + memory.weight_copies(load, True)

    measured = saved_bytes(route, architecture, 4) - saved_bytes(route, architecture, 3)
    assert said(4) - said(3) == pytest.approx(measured, rel=0.01)  # inverse norms, a number a token, are left out


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lab:
    monkeypatch.chdir(tmp_path)
    return Lab(tmp_path)


def found(lab: Lab, plan: Plan) -> estimate.Estimate:
    known = state.scan_results(lab.results)
    return estimate.estimate_launch(state.Library(plan.stages, lab.results, known), known)


def test_a_plan_shows_the_memory_of_each_stage_that_holds_a_model(lab: Lab, capsys: pytest.CaptureFixture[str]) -> None:
    said = json.loads(interplay(capsys, "plan", "quickstart", "--scale", "smoke", "--json")[1])
    memory = {one["kind"]: one.get("memory") for one in said["stages"]}
    assert memory["tokenizer"] is memory["report"] is None, "unknown"
    assert memory["rl"]["parts"].keys() >= {"weights", "optimizer"}
    assert memory["rl"]["host_bytes"] > memory["pretrain"]["host_bytes"] > 4e8
    assert {memory[kind]["source"] for kind in ("pretrain", "rl", "evaluate")} == {"formula"}


def test_more_than_the_device_has_is_refused_with_the_setting_that_fits(lab: Lab, capsys: pytest.CaptureFixture[str]) -> None:
    lab.edit("scale/smoke.yaml", "rl: {", "rl: {run: {gpus: 1, gpu_memory_gb: 0.84, micro_batch_tokens: 65536}, ")
    code, _, wrong = interplay(capsys, "plan", "quickstart", "--scale", "smoke")
    assert (code, wrong.count("\n")) == (2, 1)
    assert "(rl): needs about 0.9" in wrong
    assert "GB of a GPU's 0.84 GB (run.gpu_memory_gb); write run." in wrong
    setting = wrong.partition("; write run.")[2].partition(", which needs")[0]
    lab.edit("scale/smoke.yaml", "micro_batch_tokens: 65536}", setting.replace(" and run.", ", ") + "}")
    assert interplay(capsys, "plan", "quickstart", "--scale", "smoke")[0] == 0


def test_what_no_setting_fits_says_what_takes_the_memory(lab: Lab) -> None:
    lab.edit("scale/smoke.yaml", "rl: {", "rl: {run: {memory_mb: 100}, ")
    plan = lab.plan()
    with pytest.raises(
        UserError, match=r"of 0\.105 GB \(run\.memory_mb\); 0\.4\d* GB are the least, .* write run\.memory_mb: \d+"
    ):
        estimate.refuse_unfit("plan", plan, found(lab, plan), lab.results)


def test_a_cluster_is_asked_for_what_is_estimated_where_nothing_else_is_written() -> None:
    assert estimate.with_memory(Run(), telemetry.Need(1e9)).memory_mb == Run().memory_mb
    assert estimate.with_memory(Run(processes=2), telemetry.Need(16e9)).memory_mb == 10000, "of each, a quarter more"
    assert estimate.with_memory(Run(memory_mb=2000), telemetry.Need(16e9)).memory_mb == 2000, "a plan refuses that"


def test_a_replicate_that_is_finished_says_what_is_needed(lab: Lab) -> None:
    plan = lab.plan()
    first, second = [stage for stage in of_kind(plan, "rl") if stage.label.startswith("rl_")][:2]
    before = found(lab, plan).memory[second.digest]
    lab.finish(first, 60.0, peak_memory_mb=1234.0)
    after = found(lab, plan).memory[second.digest]
    assert before is not None
    assert after is not None
    assert (before.measured, after.measured, after.host) == (None, 1234.0 * 2**20, 1234.0 * 2**20)


def test_blocks_and_recomputation_take_less() -> None:
    """Of fields that a spec or a run block may have."""
    size = shape_size(shape("qwen3", 4).model_dump(), VOCAB)
    whole = Load({"dtype": "float32"}, Run(), size, LENGTH)
    passed = memory.Pass(2e4, 2e4, 2e4 * 16384, 2e4)
    by_blocks = memory.kept_activations(whole._replace(spec={"dtype": "float32", "blockwise": True}), passed)
    assert by_blocks < memory.kept_activations(whole, passed) / 25


def test_memories_need_no_run_block(lab: Lab) -> None:
    """As lines of a lock have none."""
    lines = lab.plan().stages_json()
    made = peak_memories({digest: {key: line[key] for key in ("kind", "spec", "deps")} for digest, line in lines.items()})
    assert {lines[digest]["kind"] for digest, one in made.items() if one} == {"pretrain", "rl", "evaluate"}


def test_a_launch_reserves_what_a_stage_is_estimated_to_need(lab: Lab) -> None:
    """In its `stage.json` as well, which its job reads."""
    many = "pretrain: {run: {micro_batch_tokens: 524288}, batch_tokens: 524288, tokens: 1000000"
    lab.edit("scale/smoke.yaml", "pretrain: {tokens: 100000, batch_tokens: 1024", many)
    plan = lab.plan()
    made = graph.Graph(lab.results, [plan])
    graph._check_needs(made, {})
    made.write_stages()
    [base], [rl, *_] = of_kind(plan, "pretrain"), of_kind(plan, "rl")
    assert made.stages[base.digest].run.memory_mb > 5000
    assert made.stages[rl.digest].run.memory_mb == Run().memory_mb
    written = json.loads((lab.out(base) / "stage.json").read_text())["run"]["memory_mb"]
    assert written == made.stages[base.digest].run.memory_mb


def test_the_formula_s_constants_are_those_of_what_computes() -> None:
    assert memory.LOGITS == MOST_LOGITS
    assert memory.NARROW == layers.RECOMPUTED
    assert memory.SHARD == SHARD_BATCHES
    cpu, dtype = torch.device("cpu"), torch.float32
    assert len(visible_blocks(None, memory.WHOLE, cpu, dtype)) == 1
    assert len(visible_blocks(None, memory.WHOLE + 1, cpu, dtype)) == -(-(memory.WHOLE + 1) // (2 * memory.BLOCK))


def test_frozen_seats_and_past_policies_are_models_next_to_the_policy() -> None:
    model, pool = {"name": "model", "model": "seat.0"}, {"name": "pool", "models": ["seat.0", "seat.1"], "every": 4, "keep": 3}
    seats = {"agent": {"name": "policy"}, "user": model, "judge": {"name": "judge", "model": "seat.2"}, "other": pool}
    assert memory.seated_models({"episode": {"name": "seats", "seats": seats}}) == 3 + 3
    assert memory.seated_models({"episode": {"name": "seats", "seats": {"user": model, "other": {**pool, "every": None}}}}) == 2
    assert memory.seated_models({"episode": {"name": "completion"}}) == 0
    assert memory.seated_models({}) == 0


def test_arms_that_judge_samples_are_models_next_to_the_one_that_is_evaluated() -> None:
    arms = {"a": "judge.0", "b": "judge.0", "c": "judge.1"}
    asked = {name: {"arm": arm, "rubric": "{completion}"} for name, arm in arms.items()}
    alone, judged = (
        formulas.Sampling().memory(
            Load(EvaluateSpec(judged=one).model_dump(), Run(), shape_size(shape("qwen3", 4).model_dump(), VOCAB), LENGTH)
        )
        for one in ({}, asked)
    )
    assert alone is not None
    assert judged is not None
    assert judged.parts["weights"] == pytest.approx(3 * alone.parts["weights"])


def test_models_that_judge_need_room_for_what_they_read() -> None:
    """A question is the rubric, a prompt and a completion; each of 8 completions has one of its own, where prompts are shared."""
    size, run, small = shape_size(shape("qwen3", 4).model_dump(), VOCAB), Run(engine_batch=8), 100
    given = {"max_completion_length": small, "num_samples": 8, "dtype": "float32"}
    asked = {"likes": {"arm": "judge.0", "rubric": "{completion}" + "x" * 2000, "max_tokens": 4}}
    spec = EvaluateSpec(judged=asked, **given)
    load = Load(spec.model_dump(), run, size, LENGTH)
    found = formulas.Sampling().memory(load)
    assert found is not None
    assert found.phase == "judge"
    token = 2 * 4 * size.layers * size.kv_heads * size.head_dim
    question = load.prompt() + small + len(asked["likes"]["rubric"])
    assert found.parts["cache"] == pytest.approx(token * 8 * (question + 1.5 * 4))
    remote = EvaluateSpec(judged={"likes": {"model": "m", "rubric": "{completion}" + "x" * 2000}}, **given)
    alone = formulas.Sampling().memory(load._replace(spec=remote.model_dump()))
    assert alone is not None
    assert alone.phase != "judge"
    rl = RLSpec(method={"paper": "p"}, mix=[1.0], steps=1, reward={"name": "judge", **asked["likes"]})
    assert memory.judging_phase(load, memory.reward_terms(rl.model_dump()["reward"]), 8, small)["judge"]["cache"] > 0
    assert memory.serving_phase(load, 2)["cache"] == 2 * memory.serving_phase(load, 1)["cache"]


def test_what_is_kept_of_episodes_counts_up_to_its_limit() -> None:
    """One key and one value of 4 layers x 4 heads x 32 in float32 are 4,096 bytes; 8 episodes of 4 turns after 2 prompts."""
    episode, size = RetryEpisode(max_turns=4), shape_size(shape("qwen3", 4).model_dump(), VOCAB)
    spec = EvaluateSpec(dtype="int8", num_samples=4, max_completion_length=50, episode=episode).model_dump()
    load = Load(spec, Run(engine_cache_mb=1000, engine_batch=4), size, LENGTH)
    kept, drawn = 8 * (4 * 50 + 24 / 4), 4 * (4 * 50 + 24)
    assert memory.kept_turns(load, 8, 4, 24) == {"kept": 4096 * (kept + drawn)}
    few = load._replace(run=Run(engine_cache_mb=1, engine_batch=4))
    assert memory.kept_turns(few, 8, 4, 24) == {"kept": 2**20 + 4096 * drawn}
    seats = {"a": {"name": "policy"}, "b": {"name": "model", "model": "rival"}}
    played = load._replace(spec=spec | {"episode": SeatsEpisode(seats=seats, order=["a", "b"], max_turns=4).model_dump()})
    each = 2 * 8 * (4 * 50 + 24)
    assert memory.kept_turns(played, 8, 4, 24) == {"kept": 4096 * (each + drawn)}, "no prompt is shared"
    assert memory.kept_turns(played._replace(run=few.run), 8, 4, 24) == {"kept": 2 * 2**20 + 4096 * drawn}, "of two engines"
    for other in ({**spec, "dtype": "float32"}, {**spec, "episode": None}, {**spec, "engine": "hf"}):
        assert memory.kept_turns(load._replace(spec=other), 8, 4, 24) == {}
    plain, turns = (formulas.Sampling().memory(load._replace(spec=one)) for one in ({**spec, "episode": None}, spec))
    assert plain is not None
    assert turns is not None
    assert turns.host > plain.host
