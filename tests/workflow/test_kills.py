"""Each kind of stage is stopped at ten random moments, by SIGKILL and by SIGTERM in turn, and ends with the bytes of one that was
not. A stage that ends before its signal comes is done again, so nothing hangs on when a moment is."""

import json
import random
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest
from conftest import BEHIND, ROOT, Laboratory

from interplay.core import artifact
from interplay.core.execution import EXIT, Run
from interplay.data.steps.spec import CurateSpec
from interplay.evaluate.spec import SelectSpec
from interplay.kinds.table import KINDS
from interplay.study.plan import Stage
from interplay.train.spec import MidtrainSpec, PretrainSpec, SftSpec, UnlearnSpec
from tools.reference.extensions import examples

MOMENTS = 10
UNLIKE = {"stage.json", "telemetry.json", "lease", "state", "resume"}


@pytest.fixture
def copy(finished: Laboratory, tmp_path: Path) -> Laboratory:
    copy = Laboratory(tmp_path / "copy")
    shutil.copytree(finished.folder / "results", copy.folder / "results", symlinks=True)
    return copy


def plan(copy: Laboratory, stage: Stage) -> Path:
    out = artifact.folder(copy.folder / "results", stage.kind, stage.digest)
    artifact.write_json(out / "stage.json", stage.as_json())
    return out


def first(copy: Laboratory, kind: str) -> tuple[str, dict]:
    """Digest and stage.json of one finished stage of the kind."""
    out = sorted((copy.folder / "results" / kind).iterdir())[0]
    return out.name, artifact.read_json(out / "stage.json")


def stage_of(copy: Laboratory, kind: str) -> Path:
    """The folder of a stage of this kind that is planned and not made; trainers and RL keep checkpoints and save at every step."""
    how = Run(save_minutes=0.0)
    if kind in ("midtrain", "sft"):
        base, planned = first(copy, "pretrain")
        spec = {"midtrain": MidtrainSpec, "sft": SftSpec}[kind](tokens=60000, batch_tokens=1024, checkpoints=[20])
        deps = {"init": base, "corpus": planned["deps"]["corpus"], "validation": planned["deps"]["validation"]}
        return plan(copy, Stage.make(kind, spec, deps, how, kind))
    if kind in ("prefer", "reward_model", "unlearn"):
        return tuning_stage(copy, kind, how)
    if kind == "teach":
        return teaching_stage(copy, how)
    if kind == "dataset":
        file = ROOT / "data/fixtures/gsm8k.jsonl"
        spec = KINDS[kind].spec(format="gsm8k", sha256=artifact.checksum(file))
        return plan(copy, Stage.make(kind, spec, {}, Run(path=str(file)), kind))
    if kind == "curate":
        return pairs_stage(copy)
    if kind == "custom":
        base, _ = first(copy, "pretrain")
        _, judged = first(copy, "evaluate")
        spec = KINDS[kind].spec(function="mine.py:copied", source=examples()["trainer"].code, mix=[1.0])
        return plan(copy, Stage.make(kind, spec, {"init": base, "data.0": judged["deps"]["data"]}, how, kind))
    if kind == "source":
        base, _ = first(copy, "pretrain")
        model = copy.folder / "results/pretrain" / base / "model"
        spec = KINDS[kind].spec(sha256=artifact.model_checksum(model))
        return plan(copy, Stage.make(kind, spec, {}, Run(path=str(model)), kind))
    if kind == "select":
        _, planned = first(copy, "pretrain")
        trained = PretrainSpec.model_validate({**planned["spec"], "checkpoints": [20, 40]})
        base = plan(copy, Stage.make("pretrain", trained, planned["deps"], how, "base"))
        assert copy.run("python", "-m", "interplay.run.stage", "run", base.name).returncode == 0
        spec = SelectSpec(by="eval_loss/id", mode="min", candidates=[20, 40])
        return plan(copy, Stage.make(kind, spec, {"init": base.name}, how, kind))
    digest, planned = first(copy, kind)
    more = {"pretrain": {"checkpoints": [30, 60]}, "rl": {"steps": 12, "checkpoints": [3, 9]}}.get(kind, {})
    spec = KINDS[kind].spec.model_validate({**planned["spec"], **more})
    out = plan(copy, Stage.make(kind, spec, planned["deps"], how, kind))
    if out.name == digest:
        unmade(out)
    return out


def teaching_stage(copy: Laboratory, how: Run) -> Path:
    """A teacher at the hard problems that the laboratory's RL is trained on."""
    _, planned = first(copy, "rl")
    _, tokens = first(copy, "tokenizer")
    method = {"paper": "test", "advantage": {"name": "leave_one_out"}, "loss": {"name": "gpg", "loss_type": "luspo"}}
    few = {"datasets": 2, "problems_per_dataset": 8, "inner_steps": 2, "prompts_per_step": 4, "probe_problems": 4}
    short = {"max_completion_length": 32, "max_proposal_length": 32, "promote_threshold": -1.0}
    given = {"method": method, "mix": [1.0], "task": tokens["spec"]["task"], "steps": 8, "checkpoints": [3], **few, **short}
    deps = {role: dep for role, dep in planned["deps"].items() if role in ("init", "data.0")}
    return plan(copy, Stage.make("teach", KINDS["teach"].spec.model_validate(given), deps, how, "teach"))


def tuning_stage(copy: Laboratory, kind: str, how: Run) -> Path:
    """One of the stages that no study of the laboratory has."""
    base, _ = first(copy, "pretrain")
    _, judged = first(copy, "evaluate")
    data, steps = judged["deps"]["data"], {"steps": 20, "checkpoints": [5]}
    if kind == "unlearn":
        spec = UnlearnSpec(forget_mix=[1.0], retain_mix=[1.0], **steps)
        return plan(copy, Stage.make(kind, spec, {"init": base, "forget.0": data, "retain.0": data}, how, kind))
    made = pairs_stage(copy)
    assert copy.run("python", "-m", "interplay.run.stage", "run", made.name).returncode == 0
    deps = {"init": base, "data.0": made.name, "validation": made.name}
    return plan(copy, Stage.make(kind, KINDS[kind].spec.model_validate({"mix": [1.0], **steps}), deps, how, kind))


def pairs_stage(copy: Laboratory) -> Path:
    """Pairs of the samples of the laboratory's evaluation."""
    samples, judged = first(copy, "evaluate")
    spec = CurateSpec.model_validate({"mix": [1.0], "steps": [{"name": "preference_pairs", "chosen": "gold"}]})
    deps = {"data.0": judged["deps"]["data"], "samples.0.0.0": samples}
    return plan(copy, Stage.make("curate", spec, deps, Run(), "pairs"))


def unmade(out: Path) -> None:
    """Back to where only its stage.json is there."""
    stage = (out / "stage.json").read_bytes()
    shutil.rmtree(out)
    out.mkdir()
    (out / "stage.json").write_bytes(stage)


def bytes_of(out: Path) -> dict[str, bytes]:
    """What the stage left, but for what the digest does not determine."""
    files = (path for path in out.rglob("*") if path.is_file() and path.relative_to(out).parts[0] not in UNLIKE)
    return {str(path.relative_to(out)): path.read_bytes() for path in files}


def make(copy: Laboratory, out: Path, *before: str) -> subprocess.Popen[str]:
    command = [*before, "python", "-m", "interplay.run.stage", "run", out.name, "--log", "log"]
    return subprocess.Popen(command, cwd=copy.folder, env=copy.env, stderr=subprocess.PIPE, text=True)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_a_stage_stopped_at_random_moments_ends_with_the_same_bytes(copy: Laboratory, kind: str) -> None:
    out = stage_of(copy, kind)
    started = time.monotonic()
    whole = make(copy, out)
    _, errors = whole.communicate()
    assert whole.returncode == 0, errors
    duration, expected = time.monotonic() - started, bytes_of(out)
    unmade(out)
    moments = random.Random(kind)
    for number in range(MOMENTS):
        killed = set(artifact.payload(out))  # a process that is stopped before it holds the lease leaves what SIGKILL left
        process = make(copy, out, *BEHIND)
        try:
            _, errors = process.communicate(timeout=moments.uniform(0, 1) * duration)
        except subprocess.TimeoutExpired:
            process.send_signal((signal.SIGKILL, signal.SIGTERM)[number % 2])
            _, errors = process.communicate()
        if artifact.done(out):
            assert bytes_of(out) == expected
            unmade(out)
        elif process.returncode == EXIT:
            assert errors.strip().splitlines()[-1].endswith("; goes on when started again"), errors
            assert not list(out.rglob("*.part"))
            assert (out / "resume").exists() or set(artifact.payload(out)) <= killed, "something half-written was left"
        else:
            assert process.returncode in (-signal.SIGKILL, -signal.SIGTERM), errors
    last = make(copy, out)
    _, errors = last.communicate()
    assert last.returncode == 0, errors
    assert bytes_of(out) == expected
    assert not list(out.rglob("*.part"))
    assert not (out / "resume").exists()
    assert json.loads((out / "telemetry.json").read_text())["attempts"] >= 1
