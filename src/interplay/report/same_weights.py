"""Where training changed nothing: stages that left the weights as they were, and arms that ended with the same ones.

A difference of zero between such arms is no finding about what sets them apart: it never acted, say since the learning rate is 0,
every group's rewards are equal, or a method that remembers prompts met none twice."""

from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import Any, NamedTuple

from interplay.report.frame import Results
from interplay.schema.report import ReportArm, ReportStage

END = "model/"
SUFFIX = ".safetensors"

Weights = frozenset[tuple[str, str]]
"""File in the model's folder -> SHA-256, as pairs; empty where no record tells."""


class Ending(NamedTuple):
    """How the path of an arm ends at one seed."""

    since: str
    """Digest, with its checkpoint if any, of the first stage of the path that already had these weights."""
    weights: Weights
    idle: tuple[str, ...]
    """Names of the stages that left the weights as they were."""


def notes(results: Results, arms: Iterable[str]) -> tuple[str, ...]:
    """A line on idle stages and one on arms that ended alike, each only where there are such among these arms."""
    wanted = set(arms)
    endings = {(row.arm, row.seed): _ending(results, row) for row in results.spec.arms if row.arm in wanted}
    idle: dict[str, list[int]] = {}
    alike: dict[tuple[str, ...], list[int]] = {}
    for (arm, seed), ending in endings.items():
        for stage in ending.idle:
            idle.setdefault(f"{stage} of {arm}", []).append(seed)
    for seed in sorted({seed for _, seed in endings}):
        for group in _groups({arm: ending for (arm, of), ending in endings.items() if of == seed}):
            alike.setdefault(group, []).append(seed)
    lines = []
    if idle:
        each = "; ".join(f"{what} ({_seeds(seeds)})" for what, seeds in idle.items())
        lines.append(f"Left the weights as they were: {each}.")
    if alike:
        each = "; ".join(f"{', '.join(group)} ({_seeds(seeds)})" for group, seeds in alike.items())
        lines.append(f"Ended with the same weights, so that what sets these arms apart did not act: {each}.")
    return tuple(lines)


def between(results: Results, arm: str, against: str) -> str:
    """`x and y ended with the same weights at seeds 0 and 1`; empty where they did at none, or are one model by plan."""
    rows = {(row.arm, row.seed): row for row in results.spec.arms if row.arm in (arm, against)}
    seeds = []
    for seed in sorted({seed for _, seed in rows}):
        one, other = rows.get((arm, seed)), rows.get((against, seed))
        if one and other and _last(one) != _last(other):
            weights = _ending(results, one).weights
            seeds += [seed] if weights and weights == _ending(results, other).weights else []
    return f"{arm} and {against} ended with the same weights at {_seeds(seeds)}" if seeds else ""


def _groups(endings: Mapping[str, Ending]) -> list[tuple[str, ...]]:
    """Arms whose weights are the same although different stages made them. An arm whose last stages were idle counts by the
    stage before, so that it is not told twice."""
    by_weights: dict[Weights, dict[str, str]] = {}
    for arm, ending in endings.items():
        if ending.weights:
            by_weights.setdefault(ending.weights, {})[arm] = ending.since
    return [tuple(arms) for arms in by_weights.values() if len(set(arms.values())) > 1]


def _ending(results: Results, row: ReportArm) -> Ending:
    path = [(stage, _weights(results.records, stage)) for stage in row.path]
    if not path:
        return Ending("", frozenset(), ())
    idle = tuple(after.name for (_, before), (after, weights) in pairwise(path) if weights and weights == before)
    since, weights = path[-1]
    for stage, earlier in reversed(path):
        if not weights or earlier != weights:
            break
        since = stage
    return Ending(_model(since), weights, idle)


def _weights(records: Mapping[str, Mapping[str, Any]], stage: ReportStage) -> Weights:
    """The files of the model with which the path goes on."""
    prefix = END if stage.step is None else f"checkpoints/{stage.step}/{END}"
    files = records.get(stage.digest, {}).get("files", {})
    return frozenset((name.removeprefix(prefix), sha) for name, (_, sha) in files.items() if _is_weights(name, prefix))


def _is_weights(name: str, prefix: str) -> bool:
    return name.startswith(prefix) and name.endswith(SUFFIX)


def _last(row: ReportArm) -> str:
    return _model(row.path[-1]) if row.path else ""


def _model(stage: ReportStage) -> str:
    return stage.digest if stage.step is None else f"{stage.digest}@{stage.step}"


def _seeds(seeds: list[int]) -> str:
    return f"{'seed' if len(seeds) == 1 else 'seeds'} {', '.join(map(str, seeds))}"
