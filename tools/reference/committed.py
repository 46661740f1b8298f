"""What is committed of a study at the scales that count: its plan, and the results of that plan or of an older one. Verdicts
that docs/data/withdrawn.yaml withdraws leave this module as withdrawn, so that no page can print them as they were computed."""

from pathlib import Path
from typing import Any

from interplay.core import artifact
from interplay.core.digest import canonical
from interplay.core.model import UserError, nearest_name
from interplay.report import claim_spec
from interplay.report.stats.contrast import HERE
from interplay.study import expand
from interplay.study.plan import flat_name, lock_path
from tools.reference import lists
from tools.reference.lists import SUPERSEDED, WITHDRAWN, WITHDRAWN_VERDICT

SCALES = ("laptop", "gpu", "paper", "coffee")
"""Scales whose results count, as they are shown. At smoke nothing is learnt."""
NOT_RUN = "not run at this commit"
KEYS = ("claims", "seeds", "stages", "environments", "exported", "grids", "figures", "samples")
"""What a result must contain in addition to the digest of its report."""


def results(root: Path, study: str) -> dict[str, dict[str, Any]]:
    """Scale -> the committed summary, for scales at which it is of the committed lock's report, or of an earlier one that
    docs/data/superseded.yaml lists: the key `superseded` then has that entry. A withdrawn claim has the verdict `withdrawn`, and
    the key `withdrawn` with its entry. Raises UserError for a withdrawal that matches no claim."""
    found = {}
    for scale in SCALES:
        path = result_path(root, study, scale)
        result, lock = _read(path), _read(_lock(root, study, scale))
        older = lists.superseded(root).get((_name(path), result.get("report", "")))
        if result and lock and (older or result["report"] == lock["report"]):
            marked = {"superseded": older} if older else {}
            judged = _judged(root, study, scale, result["claims"])
            found[scale] = _on_its_bases({**result, **marked, "claims": judged})
    return found


def _on_its_bases(result: dict[str, Any]) -> dict[str, Any]:
    """The same in the words of now, where it was judged before a verdict needed three bases: of one base it is at most
    *indicated*, and *inconclusive* is *no information*."""
    of_one_base = has_one_base(result)

    def word(claim: dict[str, Any]) -> str:
        verdict = {"inconclusive": claim_spec.NO_INFORMATION}.get(claim["verdict"], claim["verdict"])
        return claim_spec.indicated(verdict) if of_one_base else verdict

    def row(entry: dict[str, Any]) -> dict[str, Any]:
        found = of_one_base and entry["verdict"] in ("better", "worse")
        return {**entry, "verdict": entry["verdict"] + HERE} if found else entry

    claims = [{**claim, "verdict": word(claim)} for claim in result["claims"]]
    fights = result.get("contrasts", {})
    contrasts = {name: {key: row(entry) for key, entry in fight.items()} for name, fight in fights.items()}
    return {**result, "claims": claims, "contrasts": contrasts}


def has_one_base(result: dict[str, Any]) -> bool:
    """Whether the seeds of a condition share one pre-trained model: intervals then hold it fixed, and say nothing of another."""
    seeds, bases = len(result["seeds"]), result["stages"].get("pretrain", 0)
    return seeds < claim_spec.LEAST_BASES or bool(bases % seeds)


def check_withdrawn(root: Path) -> None:
    """Raises UserError for the first entry of docs/data/withdrawn.yaml that matches no committed claim."""
    for entry in lists.withdrawals(root):
        if entry.scale not in results(root, entry.study):
            raise UserError(
                f"{WITHDRAWN}: {entry.study} has no result of its plan at scale {entry.scale}, so there is nothing to withdraw "
                f"('{entry.claim}'); run the study again or remove the entry"
            )


def _judged(root: Path, study: str, scale: str, claims: list[dict[str, Any]]) -> list[dict[str, Any]]:
    entries = {one.claim: one for one in lists.withdrawals(root) if (one.study, one.scale) == (study, scale)}
    for entry in entries.values():
        verdicts = [claim["verdict"] for claim in claims if claim["says"] == entry.claim]
        if len(verdicts) != 1:
            raise UserError(
                f"{WITHDRAWN}: {study} at {scale} has no claim '{entry.claim}'{nearest_name(entry.claim, _says(claims))}"
            )
        if verdicts != [entry.verdict]:
            raise UserError(
                f"{WITHDRAWN}: the claim '{entry.claim}' of {study} at {scale} is {verdicts[0]} by now and not {entry.verdict}; "
                "read the new result, then correct the entry or remove it"
            )
    return [
        {**claim, "verdict": WITHDRAWN_VERDICT, "withdrawn": entries[claim["says"]]} if claim["says"] in entries else claim
        for claim in claims
    ]


def _says(claims: list[dict[str, Any]]) -> list[str]:
    return [claim["says"] for claim in claims]


def claims(root: Path, study: str, scale: str) -> list[dict[str, Any]]:
    """The claims of a study, run or not."""
    return [canonical(claim) for claim in expand.load(root / "configs", study, scale)[0].claims]


def stale(root: Path) -> list[str]:
    """A line for every committed result that is not, or not wholly, of the committed plan, and not listed as one of an earlier
    plan: the study changed and was not run again, or the report changed and was not made again. It says what makes it new. The
    digest of a report is made of those of all stages before it. Then a line for every entry of docs/data/superseded.yaml that has
    no such result."""
    paths = sorted((root / "docs" / "results").glob("*.json.gz"))
    listed = lists.superseded(root)
    older = {(_name(path), _read(path)["report"]) for path in paths} & listed.keys()
    unknown = [
        f"{SUPERSEDED}: docs/results has no {name}.json.gz of {report}; remove it" for name, report in listed.keys() - older
    ]
    return [line for path in paths for line in _stale(root, path, older)] + unknown


def _stale(root: Path, path: Path, older: set[tuple[str, str]]) -> list[str]:
    result = _read(path)
    study, scale = result["study"], result["scale"]
    lock = _read(_lock(root, study, scale))
    if path != result_path(root, study, scale) or not lock:
        return [f"{path.relative_to(root)}: no study {study} is planned at scale {scale} under that name; remove it"]
    current, listed = result["report"] == lock["report"], (_name(path), result["report"]) in older
    if current and listed:
        return [f"{SUPERSEDED}: {_name(path)} is of the plan as it is; remove it"]
    if not current and not listed:
        wrong = f"is of report {result['report']}, and the plan now has {lock['report']}"
    elif absent := [key for key in KEYS if key not in result]:
        wrong = f"does not say {', '.join(absent)}"
    else:
        return []
    name = path.relative_to(root)
    run = f"snakemake all --config study={study} scale={scale}"
    return [f"{name}: {wrong}; run `{run}`, then `interplay export {study} --scale {scale} -o {name}` and `make docs`"]


def result_path(root: Path, study: str, scale: str) -> Path:
    """The committed summary; `interplay export --from` draws its tables and figures."""
    return root / "docs" / "results" / f"{flat_name(study, scale)}.json.gz"


def _name(path: Path) -> str:
    return path.name.removesuffix(".json.gz")


def _lock(root: Path, study: str, scale: str) -> Path:
    return lock_path(root / "configs", study, scale)


def _read(path: Path) -> dict[str, Any]:
    return dict(artifact.read_json(path)) if path.exists() else {}
