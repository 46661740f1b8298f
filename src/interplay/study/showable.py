"""What no stage of a study will ever tell is refused before the first job: training curves that none logs, and ops that no test
set has. Else a study ends with a figure that is not drawn and claims that are not judged."""

from collections.abc import Iterable, Mapping

from interplay.schema.base import UserError, nearest
from interplay.schema.data import ProblemsSpec
from interplay.schema.logged import KL, logs, names
from interplay.schema.report import ReportArm
from interplay.schema.study import Study
from interplay.store.artifact import split_ref
from interplay.study.plan import Stage

Stages = Mapping[str, Stage]


def check(study: Study, rows: list[ReportArm], stages: Stages, where: str) -> None:
    """Raises UserError at the first figure or claim that nothing can be shown of, as far as a plan knows."""
    _curves(study, rows, stages, where)
    _ops(study, rows, stages, where)
    _columns(study, rows, stages, where)


def _curves(study: Study, rows: list[ReportArm], stages: Stages, where: str) -> None:
    """The last stage of some arm logs what a figure draws by step."""
    ends = [stages[digest] for digest in dict.fromkeys(split_ref(row.path[-1].digest)[0] for row in rows)]
    for name, figure in study.figures.items():
        if figure.x != "step" or figure.along() or any(logs(end.kind, end.spec, figure.y) for end in ends):
            continue
        kinds = ", ".join(dict.fromkeys(end.kind for end in ends))
        known = [key for end in ends for key in names(end.kind, end.spec)]
        remedy = nearest(figure.y, known)
        if figure.y == KL:
            remedy = "; stages of kind rl log it where method.loss.beta is not 0, and kl_old, from the sampling policy, always"
        raise UserError(f"{where}: figures.{name}.y = {figure.y!r}: no arm's last stage ({kinds}) logs it{remedy}")


def _ops(study: Study, rows: list[ReportArm], stages: Stages, where: str) -> None:
    """Every single op that is claimed about is in a set that the arm is tested on."""
    for number, claim in enumerate(study.claims):
        test = claim.test
        if test.recorded is not None or not test.band.startswith("op:"):
            continue
        op = int(test.band.removeprefix("op:"))
        for arm in [arm for arm in (test.arm, test.against) if arm is not None]:
            tested = _tested(arm, rows, stages)
            if tested and op not in tested:
                said = ", ".join(map(str, sorted(tested)))
                raise UserError(
                    f"{where}: claims.{number}.test.band = {test.band!r}: no problem that {arm} is tested on has {op} ops; "
                    f"they have {said}"
                )


def _columns(study: Study, rows: list[ReportArm], stages: Stages, where: str) -> None:
    """Every single op that is a table's column is in a set that some arm of the table is tested on."""
    for name, table in study.tables.items():
        arms = dict.fromkeys(row.arm for row in rows if table.arms is None or row.arm in table.arms)
        tested = [_tested(arm, rows, stages) for arm in arms]
        known = set().union(*tested)
        for column in table.columns:
            op = int(column.removeprefix("op:")) if column.startswith("op:") else None
            if op is not None and all(tested) and op not in known:
                said = ", ".join(map(str, sorted(known)))
                raise UserError(
                    f"{where}: tables.{name}.columns = {column!r}: no problem of its arms' tests has {op} ops; they have {said}"
                )


def _tested(arm: str, rows: Iterable[ReportArm], stages: Stages) -> set[int]:
    """The ops of all that an arm is evaluated on; empty where files and curated sets are among it, whose ops no plan knows."""
    digests = {digest for row in rows if row.arm == arm for digest in row.evaluations.values()}
    specs = [stages[split_ref(stages[digest].deps["data"])[0]].spec for digest in digests]
    if not all(isinstance(spec, ProblemsSpec) for spec in specs):
        return set()
    return {op for spec in specs if isinstance(spec, ProblemsSpec) for ops in spec.bands.values() for op in ops}
