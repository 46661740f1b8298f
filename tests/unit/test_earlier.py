"""More steps repeat none: a longer RL run goes on from a finished shorter one, to the bytes of a run from the start."""

import shutil
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import world

from interplay.core import artifact
from interplay.core.execution import Run
from interplay.model import folder
from interplay.model.trainer_spec import TuneOptimizer, TuneSchedule
from interplay.rl.request_spec import FixedAllocation
from interplay.rl.reward_spec import OwnReward
from interplay.rl.spec import Method, RLSpec
from interplay.run import stage as runner
from interplay.study.plan import Stage

REWARD = "def early(problems, completions, verdicts):\n    return [float(c[:1] < 'd') for c in completions]\n"


def spec_of(**more: Any) -> RLSpec:
    values: dict[str, Any] = {
        "method": Method(paper="test", allocation=FixedAllocation(num_generations=2)),
        "reward": OwnReward(function="mine.py:early", source=REWARD),
        "mix": [1.0],
        "steps": 3,
        "prompts_per_step": 4,
        "max_completion_length": 8,
        "optimizer": TuneOptimizer(learning_rate=5e-3),
        "keep_rollouts": 2,
    }
    return RLSpec(**{**values, **more})


@pytest.fixture
def results(tmp_path: Path) -> Path:
    """A model and a problem set, finished as stages are."""
    found = tmp_path / "results"
    out = world.model(found, "a" * 12)
    artifact.write_json(out / "stage.json", {"kind": "pretrain"})
    for made in (out, world.problem_set(found, "b" * 12, 12)):
        artifact.finish(made, {}, {})
    return found


def make(results: Path, spec: RLSpec, **how: Any) -> Path:
    """Run one RL stage to its end."""
    planned = Stage.make("rl", spec, {"init": "a" * 12, "data.0": "b" * 12}, Run(**how), "rl")
    out = results / "rl" / planned.digest
    artifact.write_json(out / "stage.json", planned.as_json())
    runner.run_stage(out)
    return out


def payload(out: Path) -> dict[str, bytes]:
    return {str(path.relative_to(out)): path.read_bytes() for path in artifact.payload(out)}


def continued(out: Path) -> str | None:
    return artifact.read_json(out / "telemetry.json").get("continued_from")


def test_a_longer_run_goes_on_from_the_longest_finished_one_and_ends_with_the_bytes_of_a_fresh_run(
    results: Path, tmp_path: Path
) -> None:
    make(results, spec_of(steps=2, checkpoints=[2]))
    shorter = make(results, spec_of(checkpoints=[2]))
    start, end = (folder.load_decoder(out / "model").state_dict() for out in (results / "pretrain" / ("a" * 12), shorter))
    assert any((start[name] != end[name]).any() for name in start), "it learned nothing, so equal bytes would say nothing"
    assert continued(shorter) is not None
    longer = make(results, spec_of(steps=5, checkpoints=[2, 4]))
    assert continued(longer) == shorter.name
    shutil.rmtree(results / "rl")
    fresh = make(results, spec_of(steps=5, checkpoints=[2, 4]))
    assert continued(fresh) is None
    before = payload(fresh)
    shutil.rmtree(fresh)
    make(results, spec_of(checkpoints=[2]))
    again = make(results, spec_of(steps=5, checkpoints=[2, 4]))
    assert continued(again) is not None
    assert payload(again) == before
    assert {"checkpoints/2/model/model.safetensors", "checkpoints/4/model/model.safetensors", "history.parquet"} <= before.keys()
    assert not (again / "resume").exists()


def test_a_longer_run_asks_the_sampler_for_no_prompt_twice(results: Path) -> None:
    make(results, spec_of())
    out = make(results, spec_of(steps=6))
    history = pq.read_table(out / "history.parquet").to_pylist()
    assert [len({row["index"] for row in history if (row["step"] <= 3) == first}) for first in (True, False)] == [12, 12]
    assert [row["step"] for row in history] == [step for step in range(1, 7) for _ in range(4)]


NOT = {
    "the rate differs": (spec_of(), spec_of(steps=5, optimizer=TuneOptimizer(learning_rate=1e-3))),
    "the rate decays over the run": tuple(spec_of(steps=s, schedule=TuneSchedule(name="linear")) for s in (3, 5)),
    "the run warms up": tuple(spec_of(steps=s, schedule=TuneSchedule(warmup_ratio=0.5)) for s in (3, 5)),
    "the other is longer": (spec_of(steps=5), spec_of()),
    "a checkpoint that shall be kept was not": (spec_of(), spec_of(steps=5, checkpoints=[2])),
}


@pytest.mark.parametrize("case", NOT)
def test_a_run_starts_afresh_where(case: str) -> None:
    earlier, later = NOT[case]
    assert not later.continues(earlier)
    assert spec_of(steps=5).continues(spec_of())


@pytest.mark.parametrize("what", ["its state was not kept", "its payload is damaged", "it is another version's"])
def test_a_finished_run_is_left_alone_where(what: str, results: Path) -> None:
    shorter = make(results, spec_of(), keep_state=what != "its state was not kept")
    if what == "its payload is damaged":
        (shorter / "metrics.jsonl").write_text("{}")
    if what == "it is another version's":
        shorter = shorter.rename(shorter.with_name("0" * 12))
        record = artifact.record(shorter)
        artifact.write_json(shorter / "record.json", {**record, "digest": "0" * 12})
    out = make(results, spec_of(steps=4))
    assert continued(out) is None
    assert artifact.record(out)["metrics"]["steps"] == 4
