"""How work is dealt to processes, how slices join, and which stages may ask for several processes."""

import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from devices_cases import check_equal, laid_out, pretrain
from lab import Lab, of_kind
from torch._dynamo.utils import counters
from world import SHAPE

from interplay.core import execution, metrics
from interplay.core.artifact import write_atomic
from interplay.core.execution import Run
from interplay.core.keys import parse_model
from interplay.core.model import KeyPlace, UserError
from interplay.data import batches
from interplay.data.batches import Prefetcher
from interplay.model import device
from interplay.optim import distributed
from interplay.run.graph import Graph
from interplay.train import lm
from interplay.train.loop import Throughput

RL = "rl: {kind: rl, data: {edge: 1.0}"


@pytest.fixture
def as_worker() -> Iterator[None]:
    yield
    execution.set_rank(0, 1)


def test_items_are_dealt_in_turn_and_every_one_once(as_worker: None) -> None:
    hands = []
    for rank in range(3):
        execution.set_rank(rank, 3)
        hands.append(list(distributed.shard_round_robin(range(8))))
    assert hands == [[0, 3, 6], [1, 4, 7], [2, 5]]


def test_passes_become_smaller_where_some_process_would_have_none(as_worker: None) -> None:
    def cut(tokens: int) -> list[int]:
        return [tokens] * (12 // tokens)

    assert (distributed.batch_limit(8, 12), list(distributed.shard_micro_batches(cut, 12, 12))) == (8, [12])
    execution.set_rank(1, 3)
    assert (distributed.batch_limit(8, 12), distributed.batch_limit(2, 12), distributed.batch_limit(8, 1)) == (4, 2, 1)
    assert list(distributed.shard_micro_batches(cut, 12, 12)) == [
        3
    ]  # one piece of 12, two of 6, four of 3: the second falls to this process
    assert list(distributed.shard_micro_batches(lambda tokens: [tokens], 12, 1)) == []  # one thing cannot be cut


def test_processes_see_the_rows_that_one_sees_in_its_order(tmp_path: Path, as_worker: None) -> None:
    inputs, how = laid_out(tmp_path), Run(micro_batch_tokens=128)
    spec = pretrain(model=SHAPE, tokens=4000)
    whole = lm.prepare(spec, inputs, how)
    per_step = whole.rows_per_step
    order = batches.rows_between(len(whole.per_row), spec.seed, 0, 3 * per_step)
    for count in (2, 3):
        seen: list[dict[int, list[int]]] = []
        for rank in range(count):
            execution.set_rank(rank, count)
            course = lm.prepare(spec, inputs, how)
            assert course.steps == whole.steps
            for step in range(3):
                rows = batches.rows_between(len(course.per_row), spec.seed, step * per_step, (step + 1) * per_step)
                seen.append({step * per_step + p.start: rows[p].tolist() for p in lm.pass_slices(per_step, course.rows_per_pass)})
        places = sorted(place for one in seen for place in one)
        joined = [row for place in places for one in seen for row in one.get(place, [])]
        assert joined == order.tolist()
        execution.set_rank(0, 1)


def test_only_the_first_process_writes(tmp_path: Path, as_worker: None) -> None:
    execution.set_rank(1, 2)
    write_atomic(tmp_path / "a", b"1")
    lines = metrics.Metrics(tmp_path)
    lines.write(1, loss=1.0)
    lines.sync()
    metrics.telemetry(tmp_path, mfu=1.0)
    assert list(tmp_path.iterdir()) == []
    write_atomic(tmp_path / "own", b"1", every_worker=True)
    assert [path.name for path in tmp_path.iterdir()] == ["own"]


def test_a_loop_saves_and_stops_by_what_all_processes_say() -> None:
    said = iter([(False, False), (False, True), (True, False)])
    with execution.save_points(0.0, lambda mine: next(said)) as saves:
        assert not saves.due()
        assert saves.due()
        saves.made("step 2 of 3")
        assert saves.due()
        with pytest.raises(execution.StoppedError, match="stopped at step 3 of 3"):
            saves.made("step 3 of 3")


def test_a_stage_of_two_processes_reserves_the_cores_of_both(tmp_path: Path) -> None:
    lab = Lab(tmp_path)
    before = lab.plan()
    lab.edit("study/quickstart.yaml", RL, f"{RL}, run: {{processes: 2, threads: 3}}")
    plan = lab.plan()
    assert plan.stages.keys() == before.stages.keys()
    (stage, *_) = of_kind(plan, "rl")
    threads = Graph(lab.results, [plan]).threads()
    assert callable(threads)
    assert threads(SimpleNamespace(digest=stage.digest)) == 6
    assert stage.as_json()["run"].items() >= {"processes": 2, "threads": 3}.items()


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("run: {processes: 2, gpus: 1}", "gpus = 1: of 2 processes each has one; write 2, or 0"),
        ("run: {processes: 2, sharding: fsdp2}", "sharding: each process holds the whole model; take the key away"),
        (
            "engine: vllm, run: {processes: 2}",
            "run.processes = 2: vllm within a process does not share work with others; write run.engine_server: true",
        ),
    ],
)
def test_what_cannot_be_shared_is_refused_when_it_is_planned(tmp_path: Path, given: str, said: str) -> None:
    lab = Lab(tmp_path)
    lab.edit("study/quickstart.yaml", RL, f"{RL}, {given}")
    with pytest.raises(UserError, match=r"^[^\n]*$") as refused:
        lab.plan()
    assert said in str(refused.value)


def test_a_kind_of_one_process_says_so(tmp_path: Path) -> None:
    lab = Lab(tmp_path)
    lab.edit("scale/smoke.yaml", "  evaluate: {", "  problems: {run: {processes: 2}}\n  evaluate: {")
    with pytest.raises(UserError, match=r"run.processes = 2: a stage of kind problems runs in one process; write 1 \(pretrain,"):
        lab.plan()


def test_a_run_block_of_old_says_nothing_new() -> None:
    assert Run().stated() == {}
    assert parse_model(Run, {"threads": 2}, KeyPlace("run")).cores() == 2


@pytest.mark.slow
def test_compiled_passes_train_as_others_do(tmp_path: Path) -> None:
    inputs, spec = laid_out(tmp_path), pretrain(model=SHAPE, tokens=2000)
    for name, compiled in (("plain", False), ("compiled", True)):
        lm.train_language_model(spec, inputs, tmp_path / name, Run(micro_batch_tokens=128, compile=compiled))
    check_equal(tmp_path / "plain", tmp_path / "compiled")
    assert counters["stats"]["unique_graphs"] == 2, "one before attention and one after, whatever the number of tokens"


def test_the_first_step_counts_for_the_pace_only_while_it_is_the_only_one() -> None:
    pace = Throughput()
    found = []
    for tokens, seconds in ((100, 20.0), (50, 1.0), (70, 2.0)):
        pace.add(tokens, seconds)
        found.append((pace.tokens, pace.seconds))
    assert found == [(100, 20.0), (50, 1.0), (120, 3.0)]


def test_steps_are_made_ahead_on_the_gpu_of_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[int] = []
    chosen: dict[str, torch.device] = {}
    monkeypatch.setattr(torch.cuda, "set_device", lambda device: chosen.update({threading.current_thread().name: device}))

    def make(number: int) -> int:
        if threading.current_thread() is not threading.main_thread():
            assert chosen[threading.current_thread().name] == torch.device("cuda", 1)
        made.append(number)
        return number * number

    ahead = Prefetcher(make, 5, torch.device("cuda", 1))
    assert [ahead(number) for number in (3, 4, 5)] == [9, 16, 25]
    assert made == [3, 4, 5]
    assert len(chosen) == 1
    failing = Prefetcher(lambda number: 1 // (3 - number), 4, torch.device("cuda", 1))
    assert failing(2) == 1
    with pytest.raises(ZeroDivisionError):
        failing(3)


def test_the_peak_of_int8_on_a_processor_is_that_of_float32_since_torchs_own_product_may_take_seconds(monkeypatch):
    def slow(*_):
        raise AssertionError("torch's product of int8")

    monkeypatch.setattr(torch, "_int_mm", slow)
    assert device.peak_flops(torch.int8, torch.device("cpu")) > 0
