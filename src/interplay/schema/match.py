"""Which stages of which arms a matched budget counts, and how far apart their budgets lie."""

from collections.abc import Iterable, Mapping

from interplay.schema.report import Match, ReportArm, ReportStage


def counted(match: Match, rows: Iterable[ReportArm]) -> dict[str, list[ReportStage]]:
    """Stages that count, by arm of `among`, given all arms at one seed. What all of them share would only dilute a difference:
    it is left out unless `stages` names it."""
    paths = {row.arm: row.path for row in rows if row.arm in match.among}
    if match.stages is not None:
        return {arm: [stage for stage in path if stage.name in match.stages] for arm, path in paths.items()}
    each = [{(stage.digest, stage.step) for stage in path} for path in paths.values()]
    shared = set.intersection(*each) if len(each) > 1 else set()
    return {arm: [stage for stage in path if (stage.digest, stage.step) not in shared] for arm, path in paths.items()}


def spread(numbers: Mapping[str, float]) -> float:
    """How far the smallest lies below the largest, as a share of the largest; 0 where there is nothing to compare."""
    largest = max(numbers.values(), default=0)
    return (largest - min(numbers.values())) / largest if largest else 0.0
