"""What was measured here of a study, read from what is committed and from nothing else: its scores (data/scores), from which each
number and verdict is computed again, or where there are none the summary in docs/results."""

import json
import re
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

from interplay.core import artifact
from interplay.kinds import stages as kinds
from interplay.report import claim_spec
from interplay.report.claim_spec import Claim
from interplay.report.spec import ReportSpec
from interplay.report.stats import estimate, frame, notes, sequential
from interplay.report.stats.estimate import Estimate
from interplay.report.write import summary
from interplay.results import catalog, payloads, storage
from interplay.study import expand
from interplay.study.plan import flat_name, lock_path
from tools.reference import committed

SCALES = ("coffee", *(scale for scale in committed.SCALES if scale != "coffee"))
IDLE = re.compile(r"(?:: |; )\S+ of (\S+) \(")
"""An arm in the note of a summary on arms that left the weights as they were."""
BASES = re.compile(r"\((\d+) bases,")
"""In what an interval of a summary is for; before that was stated it is not there."""
PASS = "strict_pass@"


class Measured(ABC):
    """One study at one scale."""

    study: str
    scale: str
    earlier: str
    """What is other in the plan as it is by now; empty where the result is of that."""
    most: int
    """Largest k for which every prompt has as many samples."""

    @property
    def name(self) -> str:
        """As its files are named."""
        return flat_name(self.study, self.scale)

    @abstractmethod
    def estimate(self, arm: str, against: str, band: str, metric: str) -> Estimate:
        """A value, or a difference; without seeds where it is not there."""

    @abstractmethod
    def numerics(self, found: Estimate) -> str:
        """The numerics classes of what computed with a model on the way to an estimate; empty where that is not recorded."""

    @abstractmethod
    def is_idle(self, arm: str) -> bool:
        """Whether training left the weights of an arm as they were."""

    @abstractmethod
    def judge(self, claim: Claim) -> tuple[str, str]:
        """Verdict and reason."""

    @abstractmethod
    def own_claim(self, arm: str, against: str, band: str, metric: str) -> Claim | None:
        """The claim of the study on just this."""

    @property
    @abstractmethod
    def stages(self) -> Mapping[str, Mapping[str, Any]]:
        """Digest -> stage of the plan as JSON, with the metrics of its record where that is committed."""

    @cached_property
    def parameters(self) -> int:
        """Of the largest model; 0 where it is not known."""
        return max((cost.parameters or 0 for cost in kinds.planned_costs(self.stages).values()), default=0)


class Scored(Measured):
    """From committed scores."""

    def __init__(self, root: Path, path: Path) -> None:
        files = storage.read_bundle(path)
        plan = json.loads(files["plan.json"])
        self.study, self.scale = plan["study"], plan["scale"]
        report = next(stage for stage in plan["stages"] if stage["digest"] == plan["report"])
        spec, self.earlier = ReportSpec.model_validate(report["spec"]), ""
        lock = lock_path(root / "configs", self.study, self.scale)
        if not lock.exists() or artifact.read_json(lock)["report"] != plan["report"]:  # the report is another, and its stages?
            now = _planned(root, self.study, self.scale)
            lacking = {digest for arm in spec.arms for digest in arm.evaluations.values()} - now.keys()
            self.earlier = "its plan was another" if lacking else ""
            spec = spec if lacking else ReportSpec.model_validate(list(now.values())[-1]["spec"])
        with tempfile.TemporaryDirectory() as folder:
            payloads.write_folder(Path(folder), files)
            inputs = {out.name: out for out in Path(folder).glob("records/*/*")}
            self.results = frame.read_results(spec, inputs)
        self.most = max((int(table["n"].min()) for table in self.results.prompts.values()), default=1)
        self._stages = {stage["digest"]: {**stage, **self.results.records.get(stage["digest"], {})} for stage in plan["stages"]}

    @property
    def stages(self) -> Mapping[str, Mapping[str, Any]]:
        """As kept with the scores."""
        return self._stages

    def estimate(self, arm: str, against: str, band: str, metric: str) -> Estimate:
        """Computed from the scores."""
        if against:
            return estimate.difference(self.results, arm, against, band, metric)
        return estimate.value(self.results, arm, band, metric)

    def numerics(self, found: Estimate) -> str:
        """By the records, down to the base."""
        made = artifact.closure(found.digests, lambda digest: self._stages[digest]["deps"].values())
        return _class_names(self._stages[digest] for digest in made if "metrics" in self._stages[digest])

    def is_idle(self, arm: str) -> bool:
        """By the records."""
        return bool(notes.idle_stages(self.results, [arm]))

    def judge(self, claim: Claim) -> tuple[str, str]:
        """As the report judges it, with premises and looks."""
        made = sequential.judge(self.results, claim)
        return made.verdict, made.reason

    def own_claim(self, arm: str, against: str, band: str, metric: str) -> Claim | None:
        """Of the report."""
        found = (one for one in self.results.spec.claims if _asks(one, arm, against, band, metric))
        return next(found, None)


class Summarised(Measured):
    """From a summary, as `committed.results` reads it: in the words of now, with what is withdrawn."""

    def __init__(self, root: Path, study: str, scale: str, known: Mapping[str, Any]) -> None:
        self.root, self.known, self.study, self.scale = root, known, study, scale
        older = known.get("superseded")
        self.earlier = older.because if older else ""
        grids = summary.read_grids(known)
        self.kept = summary.read_estimates(known, grids)
        self.most = max((int(key[3].removeprefix(PASS)) for key in self.kept if key[3].startswith(PASS)), default=1)
        said = [note for grid in grids.values() for note in grid.notes if note.startswith("Left the weights as they were")]
        self.idle = {arm for note in said for arm in IDLE.findall(note)}
        self.bases = 1 if committed.has_one_base(dict(known)) else len(known["seeds"])

    @cached_property
    def stages(self) -> Mapping[str, Mapping[str, Any]]:
        """Of the plan as it is."""
        return _planned(self.root, self.study, self.scale)

    def estimate(self, arm: str, against: str, band: str, metric: str) -> Estimate:
        """Of a table or figure, or of a claim."""
        found = self.kept.get((arm, against, band, metric))
        if found is None and (claim := self._entry(arm, against, band, metric)):
            of = claim["estimate"]
            value, low, high = (float("nan") if of[key] is None else of[key] for key in ("value", "low", "high"))
            found = Estimate(value, low, high, of["over"], seeds=tuple(self.known["seeds"]))
        if found is None:
            return Estimate()
        stated = BASES.search(found.over)
        return found._replace(bases=int(stated[1]) if stated else self.bases)

    def numerics(self, found: Estimate) -> str:
        """As planned; of an earlier plan it is not known."""
        return "" if self.earlier else _class_names(self.stages.values())

    def is_idle(self, arm: str) -> bool:
        """By the notes of its tables."""
        return arm in self.idle

    def judge(self, claim: Claim) -> tuple[str, str]:
        """By the interval as it is committed; withdrawn and idle arms first."""
        test = claim.test
        asked = (test.arm, test.against or "", test.recorded or test.band, test.metric)
        entry = self._entry(*asked)
        if entry and "withdrawn" in entry:
            return entry["verdict"], f"{entry['withdrawn'].reason}: {entry['withdrawn'].because}"
        if entry and entry["says"] == claim.says:
            return entry["verdict"], ""
        if still := [arm for arm in asked[:2] if arm in self.idle]:
            return claim_spec.NOT_TESTED, f"{still[0]} did not act: its weights stayed as they were"
        found = self.estimate(*asked)
        word = claim.word(found.low, found.high)
        return (claim_spec.indicated(word) if self.bases < claim_spec.LEAST_BASES else word), ""

    def own_claim(self, arm: str, against: str, band: str, metric: str) -> Claim | None:
        """As it was judged."""
        entry = self._entry(arm, against, band, metric)
        if entry and entry["test"].keys() & {"within", "at_least", "at_most", "margin"}:
            return Claim.model_validate({"says": entry["says"], "test": entry["test"]})
        claims = (
            committed.claims(self.root, self.study, self.scale) if entry else []
        )  # by a published effect, which no summary keeps
        return next((Claim.model_validate(one) for one in claims if entry and one["says"] == entry["says"]), None)

    def _entry(self, *asked: str) -> Mapping[str, Any] | None:
        return next((one for one in self.known["claims"] if _of_test(one["test"]) == asked), None)


def _class_names(stages: Iterable[Mapping[str, Any]]) -> str:
    return ", ".join(sorted({one.name for one in map(kinds.numerics_class, stages) if one.model}))


def _asks(claim: Claim, *asked: str) -> bool:
    return _of_test(claim.test.model_dump()) == asked


def _of_test(test: Mapping[str, Any]) -> tuple[str, ...]:
    """Arms, band or the stage that records the number, and metric."""
    place = test.get("recorded") or test.get("band", "")
    return test["arm"], test.get("against") or "", place, str(test.get("value") or test.get("difference"))


def of_study(root: Path, study: str) -> Iterator[Measured]:
    """What is committed of a study, by scale; scores before a summary."""
    summaries = committed.results(root, study)
    for scale in SCALES:
        path = root / storage.SCORES / f"{flat_name(study, scale)}.parquet"
        if path.exists():
            yield Scored(root, path)
        elif scale in summaries:
            yield Summarised(root, study, scale, summaries[scale])


@lru_cache(maxsize=8)
def _planned(root: Path, study: str, scale: str) -> catalog.Stages:
    return expand.plan_study(root / "configs", study, scale).stages_json()


def settings(root: Path, study: str, scale: str) -> dict[str, dict[str, Any]]:
    """Kind of stage -> dotted key -> value, of the path of the study's first arm that goes through RL, its evaluation, and the
    set that this evaluates; and `plan`, with what is not a key of a stage."""
    stages = _planned(root, study, scale)
    report = list(stages.values())[-1]["spec"]
    row = next(one for one in report["arms"] if any(stage["kind"] == "rl" for stage in one["path"]))
    evaluation = next(iter(row["evaluations"].values()))
    digests = [*(stage["digest"] for stage in row["path"]), evaluation, stages[evaluation]["deps"]["data"]]
    found = {stages[digest]["kind"]: kinds.flat_leaves(stages[digest]["spec"]) for digest in digests}
    found["evaluate"]["num_samples"] *= len(ReportSpec.model_validate(report).blocks_of(evaluation))
    task, tokenizer = found["problems"], next(stage["spec"] for stage in stages.values() if stage["kind"] == "tokenizer")
    ops = {
        f"{band}.{end}": of(report["bands"][band]) for band in ("id", "edge") for end, of in (("lowest", min), ("highest", max))
    }
    modulus = task.get("task.modulus")
    return {
        **found,
        "plan": {
            "parameters": max(cost.parameters or 0 for cost in kinds.planned_costs(stages).values()) / 1e6,
            "vocabulary": kinds.vocabulary_size(tokenizer),
            "values": f"residues of {modulus}" if modulus else task.get("task.max_value"),
            **ops,
        },
    }
