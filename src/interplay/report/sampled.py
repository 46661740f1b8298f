"""Who sampled what stands in a table, told where that was not the same for all of it: engines and precisions alter samples."""

from collections.abc import Iterable

from interplay.report.frame import Results


def notes(results: Results, arms: Iterable[str]) -> tuple[str, ...]:
    """A line on evaluations and one on RL, each only where these arms differ in it; of finished stages alone."""
    wanted = set(arms)
    chosen = [row for row in results.spec.arms if row.arm in wanted]
    evaluations = [(row.arm, digest) for row in chosen for digest in row.evaluations.values()]
    trained = [(row.arm, stage.digest) for row in chosen for stage in row.path]
    lines = []
    for what, stages in (("Evaluations", evaluations), ("RL", trained)):
        groups = _groups(results, stages)
        if len(groups) > 1:
            each = "; ".join(f"{how}: {', '.join(names)}" for how, names in groups.items())
            lines.append(f"{what} not sampled alike, so that differences may be those of engines: {each}.")
    return tuple(lines)


def _groups(results: Results, stages: list[tuple[str, str]]) -> dict[str, list[str]]:
    """Ways of sampling, such as `vllm in float32` -> arms of (arm, stage); an arm with several ways stands alone."""
    ways: dict[str, set[str]] = {}
    for arm, digest in stages:
        spec = results.records[digest]["spec"] if digest in results.records else {}
        if "engine" in spec:
            ways.setdefault(arm, set()).add(f"{spec['engine']} in {spec['dtype']}")
    groups: dict[str, list[str]] = {}
    for arm, own in ways.items():
        groups.setdefault(" and ".join(sorted(own)), []).append(arm)
    return groups
