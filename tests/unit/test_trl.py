"""RL on TRL's trainer: its losses are the loop's, a wrong option shows, a killed run goes on, and what it lacks is refused."""

import importlib.util
import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import trl_cases
from devices_cases import CLOSE, RL, Results, furthest, rl_spec, weights
from lab import Lab
from trl import GRPOConfig

from interplay.cli import overview
from interplay.core import artifact, metrics
from interplay.core.execution import Run
from interplay.core.keys import parse_model
from interplay.core.model import KeyPlace, UserError
from interplay.kinds.stages import numerics_class
from interplay.model.trainer_spec import GRPO, GRPO_WEIGHTS
from interplay.rl import loss_spec, trl
from interplay.rl.spec import RLSpec
from interplay.run.graph import check_external
from interplay.run.workers import load_function
from interplay.study.check import check_stage
from interplay.study.plan import Stage

SAME = ("reward", "strict", "entropy", "length", "trained_tokens", "loss", "grad_norm", "lr", "kl_old")
"""Values of a step that both trainers have to the last digits, as long as they sample the same."""


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return trl_cases.inputs(tmp_path_factory.mktemp("trl"))


def curves(spec: RLSpec, inputs: dict[str, Path], out: Path) -> list[dict[str, Any]]:
    load_function("rl", spec)(spec, inputs, out, trl_cases.HOW)
    return metrics.read(out)


def differing(one: list[dict[str, Any]], other: list[dict[str, Any]]) -> list[str]:
    """`step name` of every value that is not the same."""
    pairs = [(a["step"], name, a[name], b[name]) for a, b in zip(one, other, strict=True) for name in SAME]
    return [f"{step} {name}" for step, name, a, b in pairs if a != pytest.approx(b, rel=2e-4, abs=1e-6)]


@pytest.mark.parametrize("method", [trl_cases.GRPO, trl_cases.DAPO])
def test_three_steps_are_those_of_the_loop(method: dict[str, Any], inputs: dict[str, Path], tmp_path: Path) -> None:
    one, other = (curves(trl_cases.spec_of(name, method), inputs, tmp_path / name) for name in ("native", "trl"))
    assert differing(one, other) == []
    assert {line["grad_norm"] > 0 for line in one} == {True}
    for name in ("sampling/sampling_logp_difference/max", "sampling/sampling_logp_difference/mean"):
        assert max(line[name] for line in other) < 1e-4
    mine, theirs = (pq.read_table(tmp_path / name / "rollouts.parquet").to_pydict() for name in ("native", "trl"))
    assert theirs["advantage"] == pytest.approx(mine["advantage"], abs=1e-4)
    assert {name: values for name, values in theirs.items() if name != "advantage"} == {
        name: values for name, values in mine.items() if name != "advantage"
    }
    assert pq.read_table(tmp_path / "native/history.parquet").equals(pq.read_table(tmp_path / "trl/history.parquet"))


def test_a_wrong_clip_in_one_of_them_shows_in_the_first_step(
    inputs: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    native = curves(trl_cases.spec_of("native", trl_cases.DAPO, steps=1), inputs, tmp_path / "native")
    right = trl.arguments

    def planted(*given: Any) -> GRPOConfig:
        config = right(*given)
        config.epsilon_high = config.epsilon
        return config

    monkeypatch.setattr(trl, "arguments", planted)
    wrong = curves(trl_cases.spec_of("trl", trl_cases.DAPO, steps=1), inputs, tmp_path / "trl")
    assert "1 loss" in differing(native, wrong)


def test_with_engine_hf_trl_samples_by_itself_and_leaves_the_same_files(inputs: dict[str, Path], tmp_path: Path) -> None:
    spec = trl_cases.spec_of(engine="hf", steps=2, checkpoints=[1])
    one, other = (curves(spec, inputs, tmp_path / name) for name in ("a", "b"))
    assert one == other
    assert 0.1 < one[0]["strict"] < 0.9
    assert 0 < one[0]["entropy"] < 0.2
    assert one[0]["loss"] != 0
    assert {path.name for path in (tmp_path / "a").iterdir()} >= {"model", "checkpoints", "rollouts.parquet", "history.parquet"}
    kept = sorted(path.name for path in (tmp_path / "a/checkpoints/1/model").iterdir())
    assert kept == sorted(path.name for path in (tmp_path / "a/model").iterdir())


# --- several processes, kills ---


def foreign(**more: Any) -> RLSpec:
    return RLSpec(**{**rl_spec().model_dump(), "trainer": "trl", "steps": 6, "minibatches": 1, **more})


@pytest.mark.slow  # see test_trl_trainers
def test_two_processes_killed_on_the_way_end_with_the_record_of_two_that_were_not(tmp_path: Path) -> None:
    results, kept = Results(tmp_path / "results"), tmp_path / "kept"
    whole = results.in_two("rl", foreign(), **RL)
    record = artifact.record(whole)
    assert metrics.read_telemetry(whole)["environment"]["trl"].startswith("1.16")
    one = results.in_one("rl", foreign(), tmp_path / "one", **RL)
    assert furthest(weights(one), weights(whole)) < CLOSE
    whole.rename(kept)
    out = results.ask("rl", foreign(), results.roles("rl"), processes=2, **RL)
    results.kill_after(out, 2)
    made = results.make(out)
    assert made.returncode == 0, made.stderr
    assert "going on from" in made.stderr
    assert artifact.record(out) == record
    assert not (out / "resume").exists()


# --- what it expresses ---

EXPRESSED: list[dict[str, Any]] = [
    {"loss": {"name": "clipped", "loss_type": "cispo", "epsilon_high": 5.0}},
    {"loss": {"name": "clipped", "loss_type": "bnpo", "delta": 4.0, "beta": 0.1}},
    {"loss": {"name": "clipped", "importance_sampling_level": "sequence", "off_policy_mask_threshold": 0.1}},
    {"loss": {"name": "sapo"}, "sampler": {"name": "pcl"}},
    {"loss": {"name": "vespo"}, "advantage": {"name": "group", "scale_rewards": "batch"}},
]
REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"dtype": "int8"}, r"dtype = int8: TRL has float32 or bfloat16; write that, or trainer: native"),
    ({"optimizer": {"name": "muon"}}, r"optimizer\.name = muon: TRL has adamw"),
    (
        {"minibatches": 2, "method": {"loss": {"name": "clipped", "loss_type": "bnpo"}}},
        r"loss_type = bnpo: TRL has grpo or dr_grpo",
    ),
    ({"method": {"loss": {"name": "gpg"}}}, r"method\.loss\.name = gpg: TRL has clipped or sapo or vespo"),
    ({"method": {"loss": {"name": "clipped", "entropy_coef": 0.01}}}, r"method\.loss\.entropy_coef = 0\.01: TRL has 0"),
    (
        {"method": {"loss": {"name": "clipped", "kl_estimator": "k1", "beta": 0.1}}},
        r"method\.loss\.kl_estimator = k1: TRL has k3",
    ),
    ({"method": {"loss": {"name": "vespo", "loss_type": "grpo"}}}, r"method\.loss\.loss_type = grpo: TRL has dapo"),
    ({"method": {"advantage": {"name": "leave_one_out"}}}, r"method\.advantage\.name = leave_one_out: TRL has group"),
    ({"method": {"edits": [{"name": "dynamic_sampling"}]}}, r"method\.edits = dynamic_sampling: TRL has an empty list"),
    ({"method": {"shaping": [{"name": "kl"}]}}, r"method\.shaping = kl: TRL has overlong or repetition"),
    ({"method": {"episode": {"name": "retry"}}}, r"method\.episode\.name = retry: TRL has completion"),
]


def parsed(more: dict[str, Any]) -> RLSpec:
    given = {"mix": [1.0], "steps": 1, "trainer": "trl", **more, "method": {"paper": "p", **more.get("method", {})}}
    return parse_model(RLSpec, given, KeyPlace("s.yaml", ("stages", "rl")))


@pytest.mark.parametrize("method", EXPRESSED, ids=str)
def test_what_trl_expresses_is_planned(method: dict[str, Any]) -> None:
    assert parsed({"method": method}).trainer == "trl"


@pytest.mark.parametrize(("more", "said"), REFUSED, ids=[said for _, said in REFUSED])
def test_what_trl_does_not_express_is_refused_with_the_remedy(more: dict[str, Any], said: str) -> None:
    with pytest.raises(UserError, match=rf"^s\.yaml: stages\.rl: trainer = trl: (method\.loss\.)?{said}"):
        parsed(more)
    assert parsed({**more, "trainer": "native"})


def test_no_option_of_a_loss_that_it_has_gets_lost_on_the_way_to_trl() -> None:
    known = {*trl.OPTIONS, *(key.rpartition(".")[2] for key in GRPO), "loss_type", "name"}
    members = {"clipped": loss_spec.ClippedLoss, "sapo": loss_spec.SapoLoss, "vespo": loss_spec.VespoLoss}
    assert members.keys() == GRPO_WEIGHTS.keys()
    assert {option for member in members.values() for option in member.model_fields} <= known
    assert {*trl.OPTIONS, "loss_type"} <= set(GRPOConfig.__dataclass_fields__)


@pytest.mark.parametrize(
    ("run", "said"),
    [
        ({"processes": 3}, r"run\.processes = 3: trainer trl shares 256 completions of a step evenly; write 1"),
        (
            {"processes": 2},
            r"run\.processes = 2: trainer trl draws minibatches within each process; write 1, or minibatches: 1",
        ),
        ({"segment_steps": 2}, r"run\.segment_steps = 2: trainer trl has none; write 0"),
        ({"stack": 2}, r"run\.stack = 2: trl trains one model in a process"),
    ],
)
def test_what_the_run_block_asks_of_it_is_checked_at_planning(run: dict[str, Any], said: str) -> None:
    spec = parsed({"minibatches": 2} if run == {"processes": 2} else {})
    stage = Stage.make("rl", spec, {"init": "m" * 12}, Run(**run), "rl")
    with pytest.raises(UserError, match=rf"^s\.yaml: stages\.rl\.{said}"):
        check_stage(stage, {stage.digest: stage}, KeyPlace("s.yaml", ("stages", "rl")))


def test_where_trl_is_not_installed_the_plan_says_so_and_no_job_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = importlib.util.find_spec
    stage = Stage.make("rl", parsed({}), {}, Run(), "rl")
    check_external([stage])
    monkeypatch.setattr(metrics.importlib.util, "find_spec", lambda name: None if name == "trl" else found(name))
    with pytest.raises(UserError, match=r"trainer = 'trl': TRL is not installed here; pip install .*\[trl\]"):
        check_external([stage])
    lab = Lab(tmp_path)
    plan = lab.plan("methods/engines")
    seen = overview.read_overview(plan, lab.configs, lab.results, full=False)
    assert {plan.stages[digest].spec.trainer for digest in seen.lacking} == {"trl"}
    said = " ".join(str(part) for part in overview.overview_parts(seen))
    assert "TRL is not installed here; pip install" in " ".join(said.split())


def test_a_record_of_trl_says_so_and_claims_no_exactness() -> None:
    spec = json.loads(parsed({}).model_dump_json())
    made = numerics_class({"kind": "rl", "spec": spec, "metrics": {}})
    assert made.name == "trl, float32"
    assert "nothing is proven" in made.holds
    with pytest.raises(UserError, match=r"numerics = exact: does not cover (trainer = trl|dtype = float32)"):
        parsed({"numerics": "exact"})
