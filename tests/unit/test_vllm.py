"""The engine `vllm`, in process and as a server: the samples of `native`, also after the weights changed, and an end with the stage.

For an environment that holds vLLM: `make test-vllm`."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import psutil
import pytest
import torch
import world
from conftest import wait_for

from interplay.core import execution
from interplay.core.execution import Run
from interplay.core.model import UserError
from interplay.model import folder
from interplay.model.decoder import Decoder
from interplay.model.trainer_spec import Optimizer
from interplay.optim import optimizer
from interplay.rollout.engine import Engine, Request, Rollouts, Sampling, closing, engine
from interplay.rollout.request import Heat, Scale

pytestmark = pytest.mark.vllm
SHAPE = world.SHAPE.model_copy(update={"head_dim": 32, "initializer_range": 0.12})
SHAPES = {
    "qwen3": SHAPE,
    "llama": SHAPE.model_copy(update={"architecture": "llama", "tie_word_embeddings": False}),
    "qwen2": SHAPE.model_copy(update={"architecture": "qwen2", "hidden_size": 64}),
}
PLACES = {"local": Run(engine_batch=16), "server": Run(engine_batch=16, engine_server=True)}


class Case(NamedTuple):
    """An engine and the model that it samples from."""

    model: Decoder
    engine: Engine


@pytest.fixture(scope="module", params=["qwen3-local", "qwen3-server", "llama-local", "qwen2-local"])
def running(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Case]:
    name, place = request.param.split("-")
    path = world.model(tmp_path_factory.mktemp(request.param), "m" * 12, shape=SHAPES[name]) / "model"
    model = folder.load_decoder(path)
    sampler = engine("vllm", model, PLACES[place], torch.float32, path)
    yield Case(model, sampler)
    sampler.close()


@pytest.fixture
def case(running: Case) -> Iterator[Case]:
    """With the weights that it began with."""
    before = {name: tensor.clone() for name, tensor in running.model.state_dict().items()}
    yield running
    running.model.load_state_dict(before)


def requests(groups: int = 9, count: int = 4, first: int = 0) -> list[Request]:
    generator = torch.Generator().manual_seed(0)
    lengths = torch.randint(1, 60, (groups,), generator=generator).tolist()
    prompts = [torch.randint(2, 20, (length,), generator=generator).tolist() for length in lengths]
    return [Request(prompt, 2**63 + index, first, count) for index, prompt in enumerate(prompts)]


def sampling(**given: object) -> Sampling:
    usual = dict(temperature=1.0, top_p=1.0, top_k=0, max_completion_length=30, seed=3, eos=1, pad=0)
    return Sampling(**{**usual, **given})


def assert_same(ours: Rollouts, theirs: Rollouts) -> None:
    for name in ("request", "sample", "lengths", "truncated", "tokens"):
        assert torch.equal(getattr(ours, name), getattr(theirs, name)), name
    torch.testing.assert_close(ours.logprobs, theirs.logprobs, atol=1e-4, rtol=1e-4)


HEAT = Heat(0.3, Scale(-0.5, 1.0, -2.0))


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"temperature": 0.0},
        {"temperature": 0.7, "top_p": 0.8},
        {"temperature": 1.3, "top_k": 5},
        {"eos": None},
        {"heat": HEAT},
    ],
    ids=["plain", "greedy", "top_p", "top_k", "no_end", "heat"],
)
def test_tokens_are_those_of_native_and_log_probabilities_agree(case: Case, options: dict[str, Any]) -> None:
    native = engine("native", case.model, Run()).generate(requests(), sampling(**options))
    assert options or 0 < native.truncated.sum() < len(native.truncated), "the test wants rows that the limit cuts, and others"
    assert_same(native, case.engine.generate(requests(), sampling(**options)))


def test_samples_do_not_depend_on_order_or_on_who_shares_the_batch(case: Case) -> None:
    whole = case.engine.generate(requests(), sampling())
    shuffled = [Request(r.prompt, r.key, first, count) for r in reversed(requests()) for first, count in ((3, 1), (0, 3))]
    other = case.engine.generate(shuffled, sampling())
    made_by = zip(other.request.tolist(), other.sample.tolist(), strict=True)
    place = {(shuffled[r].key, s): row for row, (r, s) in enumerate(made_by)}
    for row, (request, sample) in enumerate(zip(whole.request.tolist(), whole.sample.tolist(), strict=True)):
        match, length = place[requests()[request].key, sample], int(whole.lengths[row])
        assert torch.equal(other.tokens[match, :length], whole.tokens[row, :length])


@pytest.mark.parametrize("name", ["adamw", "muon"])
def test_the_engine_follows_the_decoder_as_an_optimiser_trains_it(case: Case, name: str) -> None:
    before = case.engine.generate(requests(), sampling())
    optimizers = optimizer.build_optimizers(Optimizer(name=name), case.model.named_parameters())
    for _ in range(2):
        ids = torch.tensor([[2, 5, 7, 11, 3]])
        case.model.logits(case.model.hidden(ids, torch.arange(5)[None])).square().mean().backward()
        optimizer.apply_gradients(optimizers, list(case.model.parameters()), 1.0)
        after = case.engine.generate(requests(), sampling())
        assert_same(engine("native", case.model, Run()).generate(requests(), sampling()), after)
    assert not torch.equal(before.logprobs, after.logprobs)


def test_without_the_new_weights_its_samples_are_those_of_the_old(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    before = case.engine.generate(requests(), sampling())
    monkeypatch.setattr(case.engine.fresh, "stale", lambda: False)  # type: ignore[attr-defined]
    with torch.no_grad():
        case.model.model.norm.weight.mul_(1.5)
    assert_same(before, case.engine.generate(requests(), sampling()))
    with pytest.raises(AssertionError):
        assert_same(engine("native", case.model, Run()).generate(requests(), sampling()), before)


def test_what_could_grow_longer_than_the_model_declares_is_refused(case: Case) -> None:
    with pytest.raises(UserError, match="a prompt of 1000 tokens and max_completion_length = 30: longer than the 1024"):
        case.engine.generate([Request([2] * 1000, 1, 0, 1)], sampling())


def test_the_trainers_random_stream_and_threads_are_left_alone(case: Case, tmp_path: Path) -> None:
    torch.manual_seed(7)
    state, threads = torch.get_rng_state(), torch.get_num_threads()
    case.engine.generate(requests(2), sampling())
    assert torch.equal(torch.get_rng_state(), state)
    torch.set_num_threads(threads + 1)
    assert torch.get_num_threads() == threads + 1
    torch.set_num_threads(threads)


@pytest.mark.parametrize("place", PLACES)
def test_a_shape_that_it_does_not_compute_is_refused_before_it_starts(place: str, tmp_path: Path) -> None:
    path = world.model(tmp_path, "m" * 12) / "model"
    with pytest.raises(UserError, match="head_dim is 16, and on a CPU vLLM computes 32, 64"):
        engine("vllm", folder.load_decoder(path), PLACES[place], torch.float32, path)


STAGE = """
import sys, time
from pathlib import Path
import torch
from interplay.model import folder
from interplay.rollout.engine import closing, engine
from interplay.core.execution import Run
from interplay.core import execution
execution.install_handlers()
path = Path(sys.argv[1])
sampler = engine("vllm", folder.load_decoder(path), Run(engine_batch=8, engine_server=True), torch.float32, path)
with closing(sampler):
    Path(sys.argv[2]).write_text(f"{sampler.process.pid} {sampler.socket}")
    if sys.argv[3] == "fail":
        raise ValueError("the stage fails")
    time.sleep(600)
"""


@pytest.mark.parametrize("end", ["fail", "SIGTERM", "SIGUSR1", "SIGKILL"])
def test_the_server_is_for_this_user_alone_and_ends_with_its_stage_however_that_ends(end: str, tmp_path: Path) -> None:
    path, note = world.model(tmp_path, "m" * 12, shape=SHAPE) / "model", tmp_path / "note"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", STAGE, str(path), str(note), end]
    stage = subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL)
    try:
        wait_for(lambda: note.exists() and " " in note.read_text(), 300)
        number, listens = note.read_text().split()
        pid = int(number)
        if end != "fail":
            server = psutil.Process(pid)
            group = [server, *server.children(recursive=True)]
            listening = [c.laddr for one in group for c in one.net_connections("inet") if c.status == psutil.CONN_LISTEN]
            assert {at.ip for at in listening} <= {"127.0.0.1"}
            assert Path(listens).is_socket()
            assert Path(listens).parent.stat().st_mode & 0o077 == 0
            stage.send_signal(getattr(signal, end))
        assert stage.wait(60) != 0
        wait_for(lambda: not group_of(pid), 30)
        assert not Path(listens).parent.exists()
    finally:
        stage.kill()
        stage.wait()


def group_of(number: int) -> list[int]:
    """Processes that are left of a process group."""
    found = []
    for one in psutil.process_iter():
        try:
            if os.getpgid(one.pid) == number and one.status() != psutil.STATUS_ZOMBIE:
                found.append(one.pid)
        except (ProcessLookupError, psutil.NoSuchProcess):
            continue
    return found


def test_a_server_that_cannot_start_is_told_with_its_last_words(tmp_path: Path) -> None:
    path = world.model(tmp_path, "m" * 12, shape=SHAPE) / "model"
    model = folder.load_decoder(path)
    (path / "model.safetensors").unlink()
    with pytest.raises(RuntimeError, match=r"ended while it started[\s\S]*it said:[\s\S]*model weights"):
        engine("vllm", model, PLACES["server"], torch.float32, path)


def test_a_server_that_dies_on_the_way_is_told_and_not_waited_for(tmp_path: Path) -> None:
    path = world.model(tmp_path, "m" * 12, shape=SHAPE) / "model"
    sampler = engine("vllm", folder.load_decoder(path), PLACES["server"], torch.float32, path)
    os.killpg(sampler.process.pid, signal.SIGKILL)  # type: ignore[attr-defined]
    with closing(sampler), pytest.raises(RuntimeError, match="vLLM's server does not answer"):
        sampler.generate(requests(), sampling())


def test_a_warning_of_the_time_limit_that_reaches_the_server_leaves_it_at_work(tmp_path: Path) -> None:
    path = world.model(tmp_path, "m" * 12, shape=SHAPE) / "model"
    sampler = engine("vllm", folder.load_decoder(path), PLACES["server"], torch.float32, path)
    with closing(sampler):
        before = sampler.generate(requests(), sampling())
        os.killpg(sampler.process.pid, signal.SIGUSR1)  # type: ignore[attr-defined]
        time.sleep(1)
        assert torch.equal(sampler.generate(requests(), sampling()).tokens, before.tokens)


def test_a_server_that_was_stopped_with_its_stage_is_no_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = world.model(tmp_path, "m" * 12, shape=SHAPE) / "model"
    sampler = engine("vllm", folder.load_decoder(path), PLACES["server"], torch.float32, path)
    monkeypatch.setattr(execution, "stop_requested", lambda: True)
    os.killpg(sampler.process.pid, signal.SIGKILL)  # type: ignore[attr-defined]
    with closing(sampler), pytest.raises(execution.StoppedError, match="vLLM's server with it"):
        sampler.generate(requests(), sampling())
