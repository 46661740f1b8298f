"""How long a plan takes on so many GPUs, on plans whose schedule can be drawn by hand."""

from pathlib import Path

import pytest
from conftest import examples
from hypothesis import given, strategies as st
from lab import Lab

from interplay.cli import main
from interplay.core.execution import Run
from interplay.core.model import UserError
from interplay.model.spec import SourceSpec
from interplay.results.estimate import Estimate, Time, schedule_stages
from interplay.study.plan import Plan, Stage


def planned(*stages: tuple[str, float, int, str]) -> tuple[Plan, Estimate]:
    """Stages of (name, seconds, gpus, names that it waits for)."""
    made, times = {}, {}
    for name, seconds, gpus, after in stages:
        deps = {f"data.{i}": dep for i, dep in enumerate(after)}
        made[name] = Stage("source", SourceSpec(sha256="0" * 64), deps, Run(gpus=gpus), name, name)
        times[name] = Time(seconds, seconds * gpus, "FLOPs")
    return Plan("test", "smoke", made), Estimate({}, times, {}, {})


def test_arms_side_by_side_take_the_time_of_a_base_and_of_one_arm() -> None:
    made = planned(("a", 3600, 1, ""), *((name, 3600, 1, "a") for name in "bcde"))
    assert schedule_stages(*made, 4) == (4, pytest.approx(2.0), pytest.approx(5 / 8))
    assert schedule_stages(*made, 1) == (1, pytest.approx(5.0), pytest.approx(1.0))
    assert schedule_stages(*made, 2).hours == pytest.approx(3.0)


def test_a_stage_waits_for_all_its_inputs_and_one_without_a_gpu_for_nothing_else() -> None:
    made = planned(("a", 600, 0, ""), ("b", 1200, 1, ""), ("c", 600, 1, "ab"), ("d", 600, 0, "c"))
    assert schedule_stages(*made, 1).hours == pytest.approx(2400 / 3600)
    assert schedule_stages(*made, 1).busy == pytest.approx(1800 / 2400)


def test_a_small_stage_passes_a_large_one_that_finds_no_room() -> None:
    made = planned(("a", 1000, 3, ""), ("b", 1000, 3, ""), ("c", 500, 1, ""))
    assert schedule_stages(*made, 4).hours == pytest.approx(2000 / 3600)


def test_each_level_of_the_chain_waits_in_the_queue() -> None:
    made = planned(("a", 100, 1, ""), ("b", 100, 1, "a"), ("c", 100, 1, "b"))
    assert schedule_stages(*made, 1, wait=12.0).hours == pytest.approx(336 / 3600)


def test_a_finished_input_is_not_waited_for_and_nothing_to_do_takes_no_time() -> None:
    plan, made = planned(("a", 100, 1, ""), ("b", 100, 1, "a"))
    del made.times["a"]
    assert schedule_stages(plan, made, 1).hours == pytest.approx(100 / 3600)
    del made.times["b"]
    assert schedule_stages(plan, made, 1) == (1, 0.0, 0.0)


def test_a_stage_that_needs_more_gpus_than_there_are_is_named() -> None:
    with pytest.raises(UserError, match=r"--gpus 2: b \(source\) needs 4; name at least that many"):
        schedule_stages(*planned(("a", 100, 1, ""), ("b", 100, 4, "a")), 2)


def test_a_plan_says_it_for_each_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    Lab(tmp_path)
    monkeypatch.chdir(tmp_path)
    assert main(["plan", "edge", "--scale", "gpu", "--gpus", "1,8"]) == 0
    said = capsys.readouterr().out.splitlines()
    assert [line.split(":")[0] for line in said[-2:]] == ["on 1 GPU", "on 8 GPUs"]
    assert main(["plan", "edge", "--gpus", "1,x"]) == 2
    assert "must be numbers of GPUs" in capsys.readouterr().err


@examples(100)
@given(
    st.lists(st.tuples(st.integers(1, 4), st.sampled_from([0, 1, 2, 4]), st.sets(st.integers(0, 11), max_size=2)), max_size=12)
)
def test_every_stage_starts_at_the_first_moment_at_which_the_queue_is_scanned_in_order_and_it_fits(
    drawn: list[tuple[int, int, set[int]]],
) -> None:
    names = "abcdefghijkl"
    stages = [
        (names[i], float(seconds), gpus, "".join(names[j] for j in sorted(after) if j < i))
        for i, (seconds, gpus, after) in enumerate(drawn)
    ]
    assert schedule_stages(*planned(*stages), 4).hours * 3600 == pytest.approx(scanned(stages, 4))


def scanned(stages: list[tuple[str, float, int, str]], gpus: int) -> float:
    """Seconds of list scheduling, where the whole queue is scanned at the end of each stage. Ends at one time come by name."""
    queue, open_inputs = [stage for stage in stages if not stage[3]], {stage[0]: set(stage[3]) for stage in stages}
    running: list[tuple[float, str, int]] = []
    now = 0.0
    while queue or running:
        for stage in list(queue):
            if stage[2] <= gpus - sum(one[2] for one in running):
                queue.remove(stage)
                running.append((now + stage[1], stage[0], stage[2]))
        running.sort()
        now, done, _ = running.pop(0)
        for stage in stages:
            if done in open_inputs[stage[0]]:
                open_inputs[stage[0]].remove(done)
                if not open_inputs[stage[0]]:
                    queue.append(stage)
    return now
