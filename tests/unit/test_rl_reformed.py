"""The whole loop on reformulated rows: credit by spans over a mix of plain and subproblem rows, and the format ladder, each of which
goes on after a stop with the bytes of a run that never stopped."""

from pathlib import Path
from typing import Any

import pytest
import world
from killed_rl import payload
from test_rl_loop import HOW

from interplay.core.artifact import write_json
from interplay.core.digest import canonical
from interplay.core.execution import Run
from interplay.core.metrics import read
from interplay.data import curate
from interplay.data.steps.spec import CurateSpec
from interplay.rl import loop
from interplay.rl.spec import RLSpec

STEPS = 6


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    results = tmp_path_factory.mktemp("results")
    plain = world.problem_set(results, "a" * 12, 20)
    made = {"plain": plain, "init": world.model(results, "m" * 12)}
    steps: dict[str, dict[str, Any]] = {
        "parts": {"name": "subproblems", "k": 2},
        "ladder": {"name": "ladder", "formats": ["true_false", "four_choice", "open"], "distractors": "near"},
    }
    for number, (name, step) in enumerate(steps.items()):
        spec = CurateSpec.model_validate({"mix": [1.0], "steps": [step]})
        out = results / "curate" / (str(number) * 12)
        curate.curate_problems(spec, {"data.0": plain}, out, Run())
        write_json(out / "stage.json", {"kind": "curate", "digest": out.name, "spec": canonical(spec), "deps": {}})
        made[name] = out
    return made


def spec_of(method: dict[str, Any], reward: str, mix: list[float]) -> RLSpec:
    return RLSpec.model_validate(
        {
            "method": {"paper": "test", "allocation": {"name": "fixed", "num_generations": 4}, **method},
            "reward": {"name": reward},
            "mix": mix,
            "steps": STEPS,
            "prompts_per_step": 8,
            "max_completion_length": 16,
        }
    )


SPANS = spec_of({"advantage": {"name": "spans"}}, "subproblems", [0.5, 0.5])
LADDER = spec_of({"sampler": {"name": "format_ladder", "formats": ["true_false", "four_choice", "open"], "promotion": "random",
                              "rate": 0.5}}, "outcome", [1.0])  # fmt: skip
CASES = [(SPANS, ["plain", "parts"]), (LADDER, ["ladder"])]


def given(inputs: dict[str, Path], names: list[str]) -> dict[str, Path]:
    return {"init": inputs["init"], **{f"data.{i}": inputs[name] for i, name in enumerate(names)}}


class StoppedError(Exception):
    """Raised in place of a kill."""


@pytest.mark.parametrize(("spec", "names"), CASES, ids=["spans", "ladder"])
def test_a_run_that_was_stopped_goes_on_with_the_bytes_of_one_that_was_not(
    spec: RLSpec, names: list[str], inputs: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop.train_policy(spec, given(inputs, names), tmp_path / "whole", HOW)
    save, saved = loop.save_run, []

    def stop_after_two(*arguments: Any) -> None:
        save(*arguments)
        saved.append(arguments[-1])
        if len(saved) == 2:
            raise StoppedError

    monkeypatch.setattr(loop, "save_run", stop_after_two)
    with pytest.raises(StoppedError):
        loop.train_policy(spec, given(inputs, names), tmp_path / "parts", HOW)
    assert saved == [1, 2]
    monkeypatch.setattr(loop, "save_run", save)
    loop.train_policy(spec, given(inputs, names), tmp_path / "parts", HOW)
    assert payload(tmp_path / "parts") == payload(tmp_path / "whole")


def test_the_ladder_is_climbed_and_logged(inputs: dict[str, Path], tmp_path: Path) -> None:
    loop.train_policy(LADDER, given(inputs, ["ladder"]), tmp_path, HOW)
    lines = read(tmp_path)
    promoted = [line["sampler/promoted"] for line in lines]
    assert promoted == sorted(promoted)
    assert promoted[-1] > 0
    assert all(
        sum(line[f"sampler/share_{name}"] for name in ("true_false", "four_choice", "open")) == pytest.approx(1) for line in lines
    )
    assert lines[0]["sampler/share_true_false"] > lines[-1]["sampler/share_true_false"]


def test_an_untrained_model_breaks_the_format_and_its_parts_learn_nothing(inputs: dict[str, Path], tmp_path: Path) -> None:
    spec = spec_of({"advantage": {"name": "spans"}}, "subproblems", [1.0])
    record = loop.train_policy(spec, given(inputs, ["parts"]), tmp_path, HOW)
    assert all(line["reward/well_formed"] == 0 for line in read(tmp_path))
    assert record["optimizer_steps"] == 0
    assert record["effective_ratio_last"] == 0
