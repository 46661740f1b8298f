"""Methods against their releases: the whole method as its YAML says, on numbers that the authors' own functions made.

`tests/conformance/<method>.json` holds where the released function is (repository, commit, file, lines), the constants of its launch
script with their lines, what our YAML has in their place and why, and what the function returned on `inputs.json`: a loss and its
gradient with respect to the log-probabilities of the tokens. No code of theirs is here."""

import json
import math
import re
from dataclasses import replace
from functools import reduce
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from rl_cases import RIGHT, WRONG, batch_of, now_of
from torch import Tensor

from interplay.rl import update
from interplay.rl.advantages import advantages
from interplay.rl.batch import Batch, Memory, StepContext, take
from interplay.rl.edits import edits_after_advantage, edits_before_advantage
from interplay.rl.policy import Scores
from interplay.rl.shaping import shape_rewards
from interplay.rl.spec import Method, RLSpec
from tools.reference import lists

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "tests" / "conformance"
INPUTS = json.loads((FOLDER / "inputs.json").read_text())
FILES = {path.stem: json.loads(path.read_text()) for path in sorted(FOLDER.glob("*.json")) if path.stem != "inputs"}
METHODS = lists.methods(ROOT)
NUMBERS = [(name, place) for name, file in FILES.items() for place in range(len(file["numbers"]))]


def values_at(method: Method, key: str) -> Any:
    """What a dotted key of a method's YAML holds; parts of a list by the name of the member."""

    def part(value: Any, name: str) -> Any:
        if isinstance(value, list | tuple):
            return next(one for one in value if one.name == name)
        return getattr(value, name)

    return reduce(part, key.split("."), method)


def undone(method: Method, departures: dict[str, Any]) -> Method:
    """The method with what its release has where its YAML departs from it."""
    tree = method.model_dump()
    for key, (released, *_) in departures.items():
        *parts, last = key.split(".")
        place = tree
        for name in parts:
            place = next(one for one in place if one["name"] == name) if isinstance(place, list) else place[name]
        place[last] = released
    return Method.model_validate(tree)


def same(ours: Any, released: Any) -> bool:
    if isinstance(ours, list | tuple):
        return len(ours) == len(released) and all(map(same, ours, released))
    return math.isclose(ours, released, rel_tol=1e-12) if isinstance(released, float) else ours == released


@pytest.mark.parametrize("name", FILES)
def test_constants_are_those_of_the_launch_script_but_for_the_departures_listed(name: str) -> None:
    departures = FILES[name]["departures"]
    constants = {key: value for key, (value, _) in FILES[name].get("launch", {}).get("constants", {}).items()}
    for key, released in constants.items():
        assert key in departures or same(values_at(METHODS[name], key), released), key
    for key, (released, ours, reason) in departures.items():
        assert constants.get(key, released) == released, key
        assert same(values_at(METHODS[name], key), ours), key
        assert not same(ours, released), f"{key} is no departure"
        assert reason, key


def test_evidence_of_code_names_repository_commit_file_and_lines() -> None:
    read = {name for name, mark in lists.marks(ROOT).items() if mark.evidence == "code"}
    assert read <= set(FILES) <= set(METHODS)
    for name, file in FILES.items():
        release = file["release"]
        assert re.fullmatch(r"https://github.com/[\w.-]+/[\w.-]+", release["repository"]), name
        assert re.fullmatch(r"[0-9a-f]{40}", release["commit"]), name
        assert release["file"], name
        assert 0 < release["lines"][0] <= release["lines"][1], name


@pytest.fixture
def doubles(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Arithmetic in float64 throughout, so that a difference is one of equations."""
    monkeypatch.setattr(torch.Tensor, "float", torch.Tensor.double)
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def drawn(case: dict[str, Any]) -> Batch:
    """The completions of inputs.json as a step draws them."""
    rewards = [2.0 * r - 1 for r in INPUTS["rewards"]] if case.get("signed") else [float(r) for r in INPUTS["rewards"]]
    return batch_of(
        rewards,
        INPUTS["groups"],
        INPUTS["lengths"],
        logprobs=torch.tensor(INPUTS["old"]),
        truncated=torch.tensor(INPUTS["lengths"]) == INPUTS["max_completion_length"],
        verdicts=[RIGHT if right else WRONG for right in INPUTS["rewards"]],
        **{name: torch.tensor(case[name]) for name in ("expected", "tokens", "values") if name in case},
    )


def learnt(method: Method, case: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> tuple[float, Tensor]:
    """Loss of one optimiser step of the method, and its gradient (N,T) with respect to the log-probabilities."""
    logp = torch.tensor(INPUTS["logp"], requires_grad=True)
    old = torch.tensor(INPUTS["logp" if case["case"] == "on" else "old"])
    reference, entropy = torch.tensor(INPUTS["reference"]), case.get("entropy_scale", 1.0) * torch.tensor(INPUTS["entropy"])

    def scores(decoder: Any, batch: Batch, rows: Tensor, *_: Any, **__: Any) -> Scores:
        places = batch.row[rows]
        known = reference[places] if decoder == "reference" else logp[places]
        return Scores(known * batch.mask()[rows], entropy[places])

    monkeypatch.setattr(update, "scores", scores)
    monkeypatch.setattr(update, "shard_rows", lambda decoder, batch, rows, tokens: [rows])
    batch, limit = drawn(case), INPUTS["max_completion_length"]
    seams = {name: getattr(method, name) for name in ("shaping", "edits", "advantage")}
    context: dict[str, Any] = {"gold": lambda i: ("", case["gold"]), "entropy": entropy, "max_completion_length": limit}
    context |= {"continued": lambda batch, places, n: torch.tensor([case["worth"][row][place] for row, place in places])}
    context["reference"] = lambda batch: reference[batch.row]
    memory = Memory(len(set(INPUTS["groups"])))
    memory.load(
        {}, {name: torch.tensor([math.inf if v is None else v for v in row]) for name, row in case.get("memory", {}).items()}
    )
    now = now_of(memory=memory, **context, **seams)
    batch = shape_rewards(batch, now)
    all_right = take(batch, (batch.groups == 1).nonzero()[:, 0])  # a step that samples again finds nothing to learn from
    bears, advantage, batch = edited(method, batch, replace(now, draw=lambda m: all_right))
    spec = RLSpec.model_construct(method=method, minibatches=1, max_completion_length=limit, seed=0, temperature=1.0)
    policy: Any = SimpleNamespace(sums=None)
    references: Any = ((1.0, "reference"),) if method.loss.refers() else ()
    learner = update.Learner(spec, policy, references, [], 10**9)
    [part] = update._parts(spec, batch, advantage, bears)
    before = old[batch.row]
    known = update._prepared(learner, batch, part, before, 1)
    values, _ = update._pass(learner, batch, part, part.rows, before, known)
    assert logp.grad is not None
    return float(values["loss"]), logp.grad


def edited(method: Method, batch: Batch, now: StepContext) -> tuple[Tensor, Tensor, Batch]:
    batch = edits_before_advantage(batch, now)
    advantage = advantages(method.advantage, batch, now)
    batch, advantage, bears = edits_after_advantage(batch, advantage, update.bearing(method.loss, batch), now)
    return bears, advantage, batch


@pytest.mark.parametrize(("name", "place"), NUMBERS)
def test_loss_and_gradient_are_those_of_the_released_function(
    name: str, place: int, doubles: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    number = FILES[name]["numbers"][place]
    small = {key: (value,) for key, value in number.get("set", {}).items()}
    loss, gradient = learnt(undone(METHODS[name], FILES[name]["departures"] | small), number, monkeypatch)
    close = {"rtol": number.get("rtol", 1e-9), "atol": number.get("atol", 1e-13)}
    torch.testing.assert_close(gradient, torch.tensor(number["gradient"]), **close)
    if number["loss"] is not None:
        assert loss == pytest.approx(number["loss"], rel=close["rtol"], abs=close["atol"])
