"""Replicas that draw together: each has the samples that it has alone, up to rounding."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import torch
import world
from conftest import stopped_when
from test_rollout_engine import decoder, requests, sampling

from interplay.core import artifact
from interplay.core.execution import Replica, Run
from interplay.core.model import PermanentError, UserError
from interplay.evaluate.sampling import evaluate_model, evaluate_replicas
from interplay.evaluate.spec import EvaluateSpec
from interplay.model import decoder as decoders, device, folder
from interplay.rollout import engine as stack
from interplay.rollout.engine import Request, Rollouts, Sampling, engine
from interplay.rollout.native import Native
from interplay.rollout.request import split_together
from interplay.rollout.spec import RetryEpisode

# -- the engine --------------------------------------------------------------------------------------------------------


def models(architecture: str = "qwen3", count: int = 3) -> list[decoders.Decoder]:
    """Decoders of one shape whose samples differ."""
    return [folder.init_decoder(decoder(architecture).shape, 24, seed) for seed in range(count)]


def assert_close(together: Rollouts, alone: Rollouts, atol: float = 1e-5) -> None:
    for name in ("request", "sample", "tokens", "lengths", "truncated"):
        assert torch.equal(getattr(together, name), getattr(alone, name)), name
    torch.testing.assert_close(together.logprobs, alone.logprobs, atol=atol, rtol=1e-5)


def drawn_both_ways(
    made: list[decoders.Decoder], asked: list[list[Request]], settings: list[Sampling], rows: int, dtype: torch.dtype
) -> list[tuple[Rollouts, Rollouts]]:
    """(drawn together, drawn alone) of each."""
    how = Run(engine_batch=rows)
    alone = [Native(one, how, dtype).generate(*given) for one, *given in zip(made, asked, settings, strict=True)]
    together = Native(device.stacked(made), how, dtype).generate_each(asked, settings)
    return list(zip(together, alone, strict=True))


ASKED: dict[str, list[list[Request]]] = {
    "equal": [requests(6, 4) for _ in range(3)],
    "other prompts": [requests(1, 4), requests(9, 4)[2:], requests(5, 4)],
    "other widths": [requests(4, 7), requests(9, 1), [*requests(3, 2), *requests(2, 5)]],
}
SETTINGS: dict[str, list[Sampling]] = {
    "seeds": [sampling(seed=seed) for seed in range(3)],
    "greedy": [sampling(temperature=0.0)] * 3,
    "each its own": [sampling(temperature=0.7, top_p=0.9), sampling(eos=None, max_completion_length=7), sampling(eos=5, top_k=4)],
}


CASES = [
    *(("qwen3", asked, settings, rows) for asked in ASKED for settings in SETTINGS for rows in (5, 64)),
    *((architecture, "equal", "seeds", 64) for architecture in ("llama", "qwen2")),
]


@pytest.mark.parametrize(("architecture", "asked", "settings", "rows"), CASES)
def test_each_decoder_of_a_stack_draws_what_it_draws_alone(architecture: str, asked: str, settings: str, rows: int) -> None:
    pairs = drawn_both_ways(models(architecture), ASKED[asked], SETTINGS[settings], rows, torch.float32)
    for together, alone in pairs:
        assert_close(together, alone)
    if (asked, settings) == ("equal", "seeds"):
        assert any(one.lengths.min() < 16 < one.lengths.max() for one, _ in pairs), "the test wants groups that retire"
        assert not torch.equal(pairs[0][0].tokens[:, :5], pairs[2][0].tokens[:, :5]), "the test wants decoders that differ"


def test_of_bfloat16_most_samples_are_those_of_a_decoder_alone() -> None:
    pairs = drawn_both_ways(models(), ASKED["equal"], SETTINGS["seeds"], 64, torch.bfloat16)
    same = [(together.tokens[:, :8] == alone.tokens[:, :8]).all(1).float().mean() for together, alone in pairs]
    assert min(same) > 0.8


def test_the_same_stack_draws_the_same_bytes() -> None:
    made, how = models(), Run(engine_batch=16)
    first, again = (
        Native(device.stacked(made), how, torch.float32).generate_each(ASKED["other prompts"], SETTINGS["seeds"])
        for _ in range(2)
    )
    assert all(torch.equal(*pair) for one, other in zip(first, again, strict=True) for pair in zip(one, other, strict=True))


def test_batches_of_a_stack_are_those_of_each_alone_and_no_part_is_larger_than_the_batch() -> None:
    equal = split_together([requests(6, 4), requests(6, 4)], 8)
    assert [[len(part) for part in batch] for batch in equal] == [[2, 2]] * 3
    uneven = split_together([requests(1, 40), requests(40, 1)], 16)
    assert all(max(map(len, batch)) * max(p.count for part in batch for _, p in part) <= 16 for batch in uneven)
    for number, count in enumerate((1, 40)):
        got = [(index, part.first + i) for batch in uneven for index, part in batch[number] for i in range(part.count)]
        assert got == [(index, sample) for index in range(count) for sample in range(40 // count)]
    assert split_together([[], []], 8) == []


# -- coroutines --------------------------------------------------------------------------------------------------------


def outcomes(*functions: Callable[[stack.Coroutine], dict[str, Any]]) -> dict[int, stack.Outcome]:
    replicas = [Replica(function, {}, Path(str(number))) for number, function in enumerate(functions)]
    return dict(stack.run_replicas(lambda spec, inputs, out, how, one: spec(one), replicas, Run(stack=max(2, len(functions)))))


def test_replicas_that_draw_another_number_of_times_and_one_that_fails_leave_the_others_running() -> None:
    made = models(count=4)
    sizes: list[int] = []

    def draw(number: int, times: int, one: stack.Coroutine) -> list[Rollouts]:
        source = engine("native", made[number], Run(), stack=one)
        return [source.generate(requests(3, 2), sampling(seed=10 * number + time)) for time in range(times)]

    def fails(one: stack.Coroutine) -> dict[str, Any]:
        draw(3, 1, one)
        raise PermanentError("not finite")

    before = Native.generate_each

    def counted(self: Native, asked: list[list[Request]], settings: list[Sampling]) -> list[Rollouts]:
        sizes.append(len(asked))
        return before(self, asked, settings)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Native, "generate_each", counted)
        found = outcomes(*[lambda one, n=n: {"made": draw(n, n + 1, one)} for n in range(3)], fails)
    assert sizes == [4, 2, 1]
    assert isinstance(found[3], PermanentError)
    for number in range(3):
        alone = [
            Native(made[number], Run(), torch.float32).generate(requests(3, 2), sampling(seed=10 * number + time))
            for time in range(number + 1)
        ]
        for one, other in zip(found[number]["made"], alone, strict=True):  # type: ignore[index]
            assert_close(one, other)


def test_trained_weights_are_read_anew_and_torch_s_random_numbers_are_each_replica_s_own() -> None:
    made, drawn = models(count=2), {}

    def train(number: int, one: stack.Coroutine) -> dict[str, Any]:
        source, torch_stream = engine("native", made[number], Run(), stack=one), torch.manual_seed(number)
        parts = [source.generate(requests(2, 2), sampling())]
        optimizer = torch.optim.SGD(made[number].parameters(), lr=5.0)
        made[number].logits(made[number].hidden(torch.tensor([[3, 4, 5]]), torch.arange(3)[None])).log_softmax(-1)[
            ..., 6
        ].sum().backward()
        optimizer.step()
        drawn[number] = [float(torch.rand(())), float(torch.rand(()))]
        return {"parts": [*parts, source.generate(requests(2, 2), sampling())], "stream": torch_stream.initial_seed()}

    found = outcomes(lambda one: train(0, one), lambda one: train(1, one))
    for number in range(2):
        parts = found[number]["parts"]  # type: ignore[index]
        assert_close(parts[1], Native(made[number], Run(), torch.float32).generate(requests(2, 2), sampling()))
        assert not torch.equal(parts[0].logprobs[:, :3], parts[1].logprobs[:, :3])
        expected = torch.Generator().manual_seed(number)
        assert drawn[number] == [float(torch.rand((), generator=expected)) for _ in range(2)]


def test_flags_are_those_of_any_replica_and_an_error_that_is_no_failure_of_one_ends_all() -> None:
    found = outcomes(*[lambda one, n=n: {"flags": one.agree((n == 1, False))} for n in range(3)])
    assert [one["flags"] for _, one in sorted(found.items())] == [(True, False)] * 3  # type: ignore[index]
    with pytest.raises(ZeroDivisionError):
        outcomes(lambda one: {"flags": one.agree((False, False))}, lambda one: {"never": 1 / 0})


# -- evaluation --------------------------------------------------------------------------------------------------------


HOW = Run(stack=3, engine_batch=24)


@pytest.fixture(scope="module")
def artifacts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three bases, and two problem sets of other sizes."""
    results = tmp_path_factory.mktemp("results")
    for seed in range(3):
        world.model(results, f"model{seed}", seed)
    for name, size in (("small", 10), ("large", 50)):
        world.problem_set(results, name, size)
    return results


def replicas(artifacts: Path, out: Path, **more: Any) -> list[Replica]:
    """Evaluations of other bases, problems and numbers."""
    numbers = enumerate([("large", {}), ("small", {"temperature": 0.8}), ("large", {"seed": 3, "top_k": 5})])
    return [
        Replica(
            EvaluateSpec(num_samples=4, max_completion_length=24, **changes, **more),
            {"model": artifacts / "pretrain" / f"model{number}", "data": artifacts / "problems" / data},
            out / str(number),
        )
        for number, (data, changes) in numbers
    ]


def evaluated(some: list[Replica], how: Run = HOW) -> dict[int, stack.Outcome]:
    for one in some:
        one.out.mkdir(parents=True, exist_ok=True)
    return dict(evaluate_replicas(some, how))


RETRY = RetryEpisode(max_turns=3, feedback="a", always=True)


@pytest.mark.parametrize("more", [{}, {"errors": True, "nll": True}, {"episode": RETRY}])
def test_an_evaluation_in_a_stack_gives_what_it_gives_alone(artifacts: Path, tmp_path: Path, more: dict[str, Any]) -> None:
    some = replicas(artifacts, tmp_path / "stack", **more)
    found = evaluated(some)
    for number, one in enumerate(some):
        alone = tmp_path / str(number)
        alone.mkdir()
        assert found[number] == evaluate_model(one.spec, one.inputs, alone, Run(engine_batch=24))
        left, right = (pq.read_table(folder / "samples.parquet").to_pylist() for folder in (alone, one.out))
        assert left == right
    assert len({str(pq.read_table(one.out / "samples.parquet")["completion"].to_pylist()[:8]) for one in some}) == 3


def stopped_after(some: list[Replica], shards: int) -> None:
    """Evaluate until the first replica has written so many shards, as a signal ends it."""
    folder_of_shards = some[0].out / "resume" / "shards"
    with stopped_when(lambda: len(list(folder_of_shards.glob("*.parquet"))) >= shards, "stopped at shard"):
        evaluated(some)


def test_a_stopped_stack_of_evaluations_goes_on_to_the_same_bytes_and_alone(artifacts: Path, tmp_path: Path) -> None:
    whole, again, apart = (replicas(artifacts, tmp_path / name) for name in ("whole", "again", "apart"))
    found = evaluated(whole)
    stopped_after(again, 1)
    assert evaluated(again).items() <= found.items()
    for one, other in zip(whole, again, strict=True):
        assert (one.out / "samples.parquet").read_bytes() == (other.out / "samples.parquet").read_bytes()
    stopped_after(apart, 1)
    assert artifact.saved_numerics(apart[0].out) == {"numerics": "stacked"}
    assert evaluate_model(*apart[0], Run(engine_batch=24)) == found[0]


def test_an_evaluation_that_cannot_start_is_one_replica_s_error(artifacts: Path, tmp_path: Path) -> None:
    some = replicas(artifacts, tmp_path)
    some[1].inputs["model"] = tmp_path / "nothing"
    found = evaluated(some)
    assert isinstance(found[1], UserError)
    assert isinstance(found[0], dict)
    assert isinstance(found[2], dict)
