"""Snakemake's view of the plan. What exists leaves the graph: targets and inputs name only records that are missing.

The main process plans; a job, which parses the Snakefile again, reads its own `stage.json` and nothing else, so that editing a
study while a cluster run is in flight harms nothing."""

import logging
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, cast

from interplay.core import artifact
from interplay.core.execution import Run
from interplay.core.model import UserError, log_to_stderr
from interplay.kinds.table import read_by
from interplay.report.spec import ReportSpec
from interplay.results import kept, payloads
from interplay.run import relay, slurm
from interplay.run.spec import Site
from interplay.study import compose
from interplay.study.expand import plan_study
from interplay.study.plan import Plan, Stage

LOG = logging.getLogger(__name__)


class Graph:
    """The plans of this run (main process), or nothing but a results folder (job)."""

    def __init__(self, results: Path, plans: list[Plan], at: Site | None = None) -> None:
        self.results, self.plans, self.site = results, plans, at or Site()
        self.kept: dict[str, Path] = {}
        """Records that stand in for stages, by digest; `restore` puts them in their places. A dry run counts them, no more."""
        self.partial: list[Path] = []
        """Finished stages whose payload some missing stage needs and that is not here; known after `check_payloads`."""
        self.stages: dict[str, Stage] = {digest: stage for plan in plans for digest, stage in plan.stages.items()}

    def missing(self, digests: list[str]) -> list[str]:
        """Records of these stages (or of those whose checkpoints these are) that are not there yet."""
        wanted = dict.fromkeys(artifact.split_ref(digest)[0] for digest in digests)
        return [str(self._folder(digest) / "record.json") for digest in wanted if not self._done(digest)]

    def targets(self) -> list[str]:
        """What `all` still has to make."""
        return self.missing([plan.report for plan in self.plans])

    def inputs(self, wildcards: Any) -> list[str]:
        """Dependencies of a stage that are still missing. In a job there are none: its inputs exist by then."""
        if not self.plans:
            return []
        return self.missing(list(self.stages[wildcards.digest].deps.values()))

    def to_make(self) -> list[Stage]:
        """The stages that are not done and that some report waits for."""
        waiting, found = [plan.report for plan in self.plans], dict[str, Stage]()
        while waiting:
            digest = artifact.split_ref(waiting.pop())[0]
            if digest not in found and not self._done(digest):
                found[digest] = self.stages[digest]
                waiting += self.stages[digest].deps.values()
        return list(found.values())

    def check_payloads(self) -> None:
        """Verify what missing stages will read of finished ones. Raises UserError at the first file that is damaged, before any
        job starts. Stages of which there is only the record gather in `self.partial`: their payload has to be fetched first."""
        seen: set[tuple[str, bool]] = set()
        for stage in self.to_make():
            for dep, step in map(artifact.split_ref, stage.deps.values()):
                if not self._done(dep):
                    continue
                artifact.at_step(self._record(dep), step)
                only = read_by(stage.kind, self.stages[dep].kind)
                if (dep, only is None) not in seen:
                    seen.add((dep, only is None))
                    self._check(dep, only)

    def _check(self, digest: str, only: tuple[str, ...] | None) -> None:
        if artifact.absent(self._record(digest), only):
            self.partial.append(self._folder(digest))
        else:
            artifact.check(self._record(digest), only)

    def restore(self) -> None:
        """Put the kept records into their places."""
        kept.put_back(self.results, self.stages, self.kept)
        self.kept = {}

    def _done(self, digest: str) -> bool:
        return digest in self.kept or artifact.done(self._folder(digest))

    def _record(self, digest: str) -> Path:
        """Where the record of a stage that is done lies."""
        return self.kept.get(digest) or self._folder(digest)

    def _folder(self, digest: str) -> Path:
        return artifact.folder(self.results, self.stages[digest].kind, digest)

    def threads(self, wildcards: Any) -> int:
        """CPU threads of a stage, those of all its processes."""
        return self._run(wildcards.digest).cores()

    def resources(self) -> dict[str, Callable[[Any], int | str]]:
        """What a stage asks of a cluster, by Snakemake's names: each a function of the stage's wildcards. Memory is in MiB,
        runtime in minutes; an empty name leaves the choice to the cluster."""
        asked: dict[str, Callable[[Run], int | str]] = {
            **{name: partial(_same, value) for name, value in slurm.named(self.site).items()},
            "mem_mb": lambda run: run.memory(),
            "runtime": lambda run: run.runtime,
            "gpu": lambda run: run.gpus,
            "gpu_model": lambda run: (self.site.gpu_model or "") if run.gpus else "",
            "slurm_partition": lambda run: slurm.partition(self.site, run.gpus),
            "slurm_extra": lambda run: slurm.extra(self.site),
        }
        return {name: partial(self._asked, of_run) for name, of_run in asked.items()}

    def _asked(self, of_run: Callable[[Run], int | str], wildcards: Any) -> int | str:
        return of_run(self._run(wildcards.digest))

    def _run(self, digest: str) -> Run:
        if digest in self.stages:
            return self.stages[digest].run
        return Run(**artifact.read_json(artifact.find(self.results, digest) / "stage.json")["run"])

    def write_stages(self) -> None:
        """Write `stage.json` for every stage that is not done, and forget failures that a new start may mend. A stage that came
        through DVC or from a kept record is done and lacks it too."""
        made_at = artifact.current_commit()
        for stage in self.stages.values():
            folder = self._folder(stage.digest)
            if not artifact.done(folder):
                (folder / "failure.json").unlink(missing_ok=True)
                artifact.write_json(folder / "stage.json", {**stage.as_json(), "commit": made_at})
            elif not (folder / "stage.json").exists():
                artifact.write_json(folder / "stage.json", stage.as_json())

    def link(self) -> list[Path]:
        """Readable links: `by-name/<study>.<scale>/report` and `.../<arm>/seed<n>/<stage>`; returns the reports."""
        return [_link_study(self.results, plan, self.by_name(plan)) for plan in self.plans if not self.missing([plan.report])]

    def by_name(self, plan: Plan) -> Path:
        """The folder of a study's readable links."""
        return self.results / "by-name" / kept.name(plan)


def _same(value: str, run: Run) -> str:
    return value


def _link_study(results: Path, plan: Plan, top: Path) -> Path:
    links = {"report": plan.report}
    for arm in cast(ReportSpec, plan.stages[plan.report].spec).arms:
        steps = [(stage.name, stage.digest) for stage in arm.path]
        for name, digest in [*steps, *arm.evaluations.items()]:
            links[f"{arm.arm}/seed{arm.seed}/{name}"] = digest
    for name, digest in links.items():
        link = top / name
        target = os.path.relpath(artifact.folder(results, plan.stages[digest].kind, digest), link.parent)
        if link.is_symlink() and os.readlink(link) == target:
            continue
        link.parent.mkdir(parents=True, exist_ok=True)
        part = link.with_name(f".{link.name}.part")
        part.unlink(missing_ok=True)
        part.symlink_to(target)
        os.replace(part, link)
    return top / "report" / "report.html"


def open_graph(root: Path, config: dict[str, Any], main_process: bool) -> Graph:
    """What the Snakefile calls. Whatever is wrong with the studies leaves by one line and exit code 2, before any job."""
    log_to_stderr()
    results = Path("results")
    if not main_process:
        relay.pass_on(root / "configs")
        return Graph(results, [])
    try:
        _writable(results)
        names, scale = compose.chosen(root / "configs", config)
        at = slurm.load_site(root / "configs")
        graph = Graph(results, [plan_study(root / "configs", name, scale) for name in names], at)
        graph.kept = kept.restorable(results, graph.stages, payloads.kinds(results))
        _warned_in_time(graph)
        if limits := compose.limits(config):
            _within(graph, limits)
        graph.check_payloads()
        for folder in graph.partial:
            payloads.obtainable(folder)
        return graph
    except UserError as error:
        LOG.error("interplay: %s", error)
        raise SystemExit(2) from None


def _writable(results: Path) -> None:
    existing = next(path for path in (results, *results.absolute().parents) if path.exists())
    if not os.access(existing, os.W_OK | os.X_OK) or not existing.is_dir():
        raise UserError(f"{results}: not writable; free it with chmod, or run from a folder that is yours")


def _warned_in_time(graph: Graph) -> None:
    """Raises UserError where the warning ahead of a stage's time limit may come as it starts: Slurm may be a minute early."""
    least = graph.site.warn_seconds // 60 + 2
    for stage in graph.to_make():
        if stage.run.runtime < least:
            granted = (
                f"{stage.label} is granted no more than that and a minute (run.runtime: {stage.run.runtime}, kind {stage.kind})"
            )
            remedy = f"grant it {least} minutes or more, or warn later"
            raise UserError(f"configs/site.yaml: warn_seconds = {graph.site.warn_seconds}: {granted}; {remedy}")


def _within(graph: Graph, limits: dict[str, float]) -> None:
    """Raises UserError when what is left to make would take more hours than allowed."""
    from interplay.results import estimate, state

    found = state.scan(graph.results)
    found |= {digest: state.Found(graph.stages[digest].kind, state.KEPT) for digest in graph.kept}
    made = estimate.to_make(state.Library(graph.stages, graph.results, found), found)
    estimate.refuse("--config", made, limits.get("max_gpu_hours"), limits.get("max_hours"))
