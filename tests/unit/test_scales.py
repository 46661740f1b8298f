"""All scales: every study plans at each of them, the models that no test can train have the size that the plan says, and one of
them makes one real step."""

import functools
import json
import re
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch
from conftest import ROOT
from key_order import meaning, reversed_maps

from interplay.kinds.stages import planned_costs, shape_size, vocabulary_size
from interplay.model import folder
from interplay.model.decoder import Decoder
from interplay.report.spec import ReportSpec
from interplay.study import compose, expand
from interplay.study.expand import plan_study
from interplay.study.plan import Plan

CONFIGS = ROOT / "configs"
SCALES = ["smoke", "laptop", "gpu", "paper"]
COFFEE = "coffee"
"""Lists its studies."""
LARGE = ["gpu", "paper"]
GIGABYTES = 24


@pytest.fixture(scope="module", params=expand.studies(CONFIGS))
def study(request: pytest.FixtureRequest) -> str:
    """One study after the other, each for all tests that ask: it is then composed once."""
    return str(request.param)


composed = functools.cache(functools.partial(compose.compose_study, parts={}))
"""Of (configs, study, scale)."""
TURN = {study: place for place, study in enumerate(expand.studies(CONFIGS))}
THIRD = expand.studies(CONFIGS)[::3]
"""All of them are among the slow tests."""


def beside(study: str, scales: list[str]) -> list[str]:
    """Smoke and, of each third study, one more, another from study to study: composing a study takes most of the time. Every plan at
    every scale is held to its lock by `interplay plan --all --check`, which `make test` runs before these tests."""
    others = [scale for scale in scales if scale != "smoke"]
    return ["smoke"] if TURN[study] % 3 else ["smoke", others[TURN[study] // 3 % len(others)]]


@functools.cache
def planned(study: str, scale: str) -> Plan:
    with mock.patch.object(compose, "compose_study", lambda configs, study, scale, *_: composed(configs, study, scale)):
        return plan_study(CONFIGS, study, scale)


def arms(plan: Plan) -> list[str]:
    """Names of the arms, without the values of axes: these are knobs where a scale has other models."""
    report = plan.stages[plan.report].spec
    assert isinstance(report, ReportSpec)
    return sorted({arm.arm: re.sub(r"=[^,\]]*", "=", arm.arm) for arm in report.arms}.values())


def test_these_are_all_scales() -> None:
    assert expand.scales(CONFIGS) == sorted([*SCALES, COFFEE])


def at(study: str) -> list[str]:
    """The scales at which the plan of a study is committed: all, but for the one that lists its studies."""
    return [scale for one, scale in committed() if one == study]


@functools.cache
def committed() -> list[tuple[str, str]]:
    return expand.committed(CONFIGS)


def test_a_study_is_committed_at_every_scale_that_does_not_list_its_own(study: str) -> None:
    assert sorted({*SCALES, *at(study)}) == at(study)


def check_asks_the_same(study: str, scales: list[str]) -> None:
    plans = [planned(study, scale) for scale in scales]
    assert arms(plans[0])
    assert all(arms(plan) == arms(plans[0]) for plan in plans)
    assert len({plan.stages[plan.report].spec.question for plan in plans}) == 1


@pytest.mark.parametrize("study", THIRD)
def test_a_study_asks_the_same_at_smoke_and_another_scale(study: str) -> None:
    check_asks_the_same(study, beside(study, at(study)))


@pytest.mark.slow
def test_a_study_asks_the_same_at_every_scale(study: str) -> None:
    check_asks_the_same(study, at(study))


def test_each_committed_plan_has_a_lock_and_no_other_has() -> None:
    locks = {str(path.relative_to(CONFIGS / "plans")).removesuffix(".lock.json") for path in CONFIGS.glob("plans/**/*.lock.json")}
    assert locks == {f"{study}.{scale}" for study, scale in committed()}


@pytest.mark.slow  # `interplay plan --all --check`, part of `make test`, plans every study at every scale and fails on a stale lock
def test_committed_locks_are_what_the_configs_say(study: str) -> None:
    assert [scale for scale in at(study) if not planned(study, scale).locked(CONFIGS)] == []


def check_order_of_keys(study: str, scale: str) -> None:
    tree = reversed_maps(composed(CONFIGS, study, scale))
    assert list(tree["study"]) != list(composed(CONFIGS, study, scale)["study"])
    with mock.patch.object(compose, "compose_study", return_value=tree):
        assert meaning(plan_study(CONFIGS, study, scale)) == meaning(planned(study, scale))


@pytest.mark.parametrize("study", THIRD)
def test_the_order_of_keys_changes_no_plan(study: str) -> None:
    check_order_of_keys(study, beside(study, at(study))[TURN[study] % 2])


@pytest.mark.slow
@pytest.mark.parametrize("scale", SCALES)
def test_the_order_of_keys_changes_no_plan_at_any_scale(study: str, scale: str) -> None:
    check_order_of_keys(study, scale)


@pytest.mark.parametrize("scale", LARGE)
def test_every_fresh_model_has_the_parameters_that_its_plan_counts(scale: str) -> None:
    studies = [study for study in TURN if scale in beside(study, at(study))]
    assert len(studies) > 5
    for study in studies:
        lines = planned(study, scale).stages_json()
        counted = planned_costs(lines)
        for digest, line in lines.items():
            if line["kind"] == "pretrain":
                shape = planned(study, scale).stages[digest].spec.model
                size = vocabulary_size(lines[line["deps"]["tokenizer"]]["spec"])
                built = built_parameters(shape, size)
                assert built == shape_size(line["spec"]["model"], size).parameters == counted[digest].parameters, study


@functools.cache
def built_parameters(shape: Any, size: int) -> int:
    """Of our decoder, and of the Hugging Face model that its config.json describes."""
    with torch.device("meta"):
        ours = Decoder(shape, size)
    assert {parameter.device.type for parameter in ours.parameters()} == {"meta"}
    built = sum(parameter.numel() for parameter in ours.parameters())
    assert built == published(ours)
    return built


def published(decoder: Decoder) -> int:
    """Parameters of the Hugging Face model that our config.json describes."""
    from transformers import AutoConfig, AutoModelForCausalLM

    config = AutoConfig.for_model(**folder.config_json(decoder, {"bos_token_id": None, "eos_token_id": 0, "pad_token_id": 0}))
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config)
    return sum(parameter.numel() for parameter in model.parameters())


def test_the_papers_model_has_the_papers_size() -> None:
    from interplay.model.spec import Shape

    shape = next(s.spec.model for s in planned("quickstart", "paper").stages.values() if s.kind == "pretrain")
    assert isinstance(shape, Shape)
    assert shape_size(shape.model_dump(), 2200).parameters == pytest.approx(103.2e6, rel=1e-3)


# --- one step of the full shape ---

STEP = """
import json, sys
from pathlib import Path
from interplay.data import corpus, problems, tokenizer
from interplay.schema.data import CorpusSpec, ProblemsSpec, TokenizerSpec
from interplay.core.execution import Run
from interplay.train.spec import PretrainSpec
from interplay.train import lm
out, specs = Path(sys.argv[1]), json.loads(sys.argv[2])
problems.generate_problems(ProblemsSpec(**specs["problems"]), {}, out / "problems", Run())
tokenizer.build_tokenizer(TokenizerSpec(**specs["tokenizer"]), {}, out / "tokenizer", Run())
roles = {"data.0": out / "problems", "tokenizer": out / "tokenizer"}
corpus.build_corpus(CorpusSpec(**specs["corpus"]), roles, out / "corpus", Run())
roles = {"corpus": out / "corpus", "tokenizer": out / "tokenizer"}
print(json.dumps(lm.train_language_model(PretrainSpec(**specs["pretrain"]), roles, out / "pretrain", Run(micro_batch_tokens=512, save_minutes=60))))
"""


def short(plan: Plan) -> dict[str, Any]:
    """The first specs of the plan's kinds, with a short batch and little data, in float32, which a CPU without bfloat16 does five
    times as fast: task, shape and optimiser as they stand."""
    found: dict[str, Any] = {}
    for stage in plan.stages.values():
        found.setdefault(stage.kind, stage.as_json()["spec"])
    return {
        "problems": {**found["problems"], "size": 60, "unique": False},
        "tokenizer": found["tokenizer"],
        "corpus": {**found["corpus"], "sequence_length": 256},
        "pretrain": {**found["pretrain"], "tokens": 512, "batch_tokens": 512, "checkpoints": [], "dtype": "float32"},
    }


@pytest.mark.slow
def test_the_papers_model_makes_a_real_step_on_this_machine(tmp_path: Path) -> None:
    specs = short(planned("quickstart", "paper"))
    before, started = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss, time.monotonic()
    made = subprocess.run(
        [sys.executable, "-c", STEP, str(tmp_path), json.dumps(specs)], capture_output=True, text=True, check=False, timeout=900
    )
    assert made.returncode == 0, made.stderr[-2000:]
    seconds, memory = time.monotonic() - started, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 2**20
    record = json.loads(made.stdout.splitlines()[-1])
    print(f"{record['parameters']:,} parameters, {record['tokens']} tokens: {seconds:.1f} s with start, {memory:.2f} GiB")
    assert record["parameters"] > 100e6
    assert record["steps"] >= 1
    assert memory < GIGABYTES, f"it was {before / 2**20:.2f} GiB before"
    initial = folder.init_decoder(folder.load_decoder(tmp_path / "pretrain/model").shape, 76, seed=0)
    trained = dict(folder.load_decoder(tmp_path / "pretrain/model").named_parameters())
    moved = [name for name, weight in initial.named_parameters() if not torch.equal(weight, trained[name])]
    assert len(moved) == len(trained)
