"""Snakemake's view of the plan, and what its main process does before and after the jobs.

What exists leaves the graph: targets and inputs name only records that are missing. The main process plans; a job, which parses
the Snakefile again, reads its own `stage.json` and nothing else, so that editing a study during a cluster run is safe."""

import gc
import inspect
import logging
import os
import shlex
import shutil
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from interplay.core import artifact, execution, metrics, model
from interplay.data.spec import DatasetSpec
from interplay.kinds.table import KINDS, read_by
from interplay.model.spec import SourceSpec
from interplay.results import catalog, estimate, payloads, state
from interplay.run import forkserver, resources, slurm, workers
from interplay.run.slurm import Site
from interplay.study import choices, expand
from interplay.study.plan import Plan, Stage
from interplay.track import live

LOG = logging.getLogger(__name__)
T = TypeVar("T")
Given = int | str | Callable[[Any], int | str]
"""A resource of a rule: a value, or a function of a stage's wildcards."""
SIGNATURE = inspect.Signature([inspect.Parameter("wildcards", inspect.Parameter.POSITIONAL_OR_KEYWORD)])
MOST_DRIFTED = 5
"""Changed source files that a launch names."""


class Graph:
    """The plans of this run (main process), or nothing but a results folder (job)."""

    def __init__(self, results: Path, plans: list[Plan], site: Site | None = None) -> None:
        self.results, self.plans, self.site = results, plans, site or Site()
        self.edited = self.finished = False
        """Whether keys of the studies are changed; whether finished stages stay in the graph, for `snakemake --report` alone."""
        self.kept: dict[str, Path] = {}
        """Kept records by digest: they count as done, and `restore` copies them to their places. A dry run only counts them."""
        self.partial: list[Path] = []
        """Finished stages whose payload some missing stage reads and that is not here; known after `check_payloads`."""
        self.stages: dict[str, Stage] = {digest: stage for plan in plans for digest, stage in plan.stages.items()}
        self.server: forkserver.Launched | None = None
        """Forks the stages of this launch once `on_start` has started it."""
        self._records = {digest: str(self.folder(digest) / "record.json") for digest in self.stages}
        """What says that a stage is made: its record, or where it shares a job what that job leaves."""
        self.shared: dict[str, slurm.Shared] = {}

    def runner(self) -> str:
        """The command that makes a stage, without its arguments. What the main process runs itself is on this machine."""
        use_server = self.plans and self.site.fork_server
        return shlex.join(["python", "-IS", forkserver.__file__]) if use_server else "python -m interplay.run.stage"

    def missing(self, refs: Iterable[str]) -> list[str]:
        """Records of these stages (or of those whose checkpoints these are) that do not exist yet."""
        return [self._records[digest] for digest in self._missing(refs)]

    def drawn(self) -> list[tuple[str, str, str, str]]:
        """For `snakemake --report`: files of figures and tables of finished studies by their readable names, with the record of
        the report, the study and the sort of file."""
        found = []
        for plan in self.plans if self.finished else ():
            folder, record = self.by_name(plan) / "report", self._records[plan.report]
            for part in ("figures/*.svg", "tables/*.csv") if os.path.exists(record) else ():
                found += [(str(path), record, folder.parent.name, path.parent.name) for path in sorted(folder.glob(part))]
        return found

    def _missing(self, refs: Iterable[str]) -> list[str]:
        wanted = dict.fromkeys(artifact.ref_digest(ref) for ref in refs)
        return [digest for digest in wanted if not self._done(digest)]

    def targets(self) -> list[str]:
        """Reports that `all` has to make; those that are made, and what they show, where finished stages stay in the graph."""
        if self.finished:
            return [path for path, *_ in self.drawn()]
        return self.missing([plan.report for plan in self.plans])

    def inputs(self) -> Callable[[Any], list[str]]:
        """A function from a stage's wildcards to its inputs. In a job there are none: they exist by then."""
        return with_wildcards(lambda wildcards: self._inputs(wildcards.digest) if self.plans else [])

    def _inputs(self, digest: str) -> list[str]:
        """Dependencies of a stage that are still missing, without those that another of them has to wait for: a report reads all
        that the evaluations do, and each file costs Snakemake time."""
        if self.finished:
            wanted = dict.fromkeys(self.stages[digest].inputs())
            return [self._records[dep] for dep in wanted if self._done(dep)]
        members = self.shared[digest].members if digest in self.shared else [digest]
        missing = self._missing(ref for member in members for ref in self.stages[member].deps.values())
        waited = {ref for dep in missing for ref in self.stages[dep].inputs()}
        return list(dict.fromkeys(self._records[dep] for dep in missing if dep not in waited))

    def share(self, jobs: list[slurm.Shared]) -> None:
        """Have these jobs make their stages. Where an earlier launch made all of a job, and its stages were removed since, what
        that job left does not count: they have jobs of their own."""
        for job in jobs:
            made = str(job.folder(self.results) / slurm.MADE)
            if not os.path.exists(made):
                self.shared[job.digest] = job
                self._records |= dict.fromkeys(job.members, made)

    def to_make(self) -> list[Stage]:
        """The stages that are not done and that some missing report needs."""
        return [self.stages[digest] for digest in state.needed_stages(self.stages, self._done)]

    def check_payloads(self) -> None:
        """Verify what missing stages will read of finished ones. Raises UserError at the first damaged file, before any job
        starts. Stages whose payload has to be fetched first are collected in `self.partial`."""
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
            self.partial.append(self.folder(digest))
        else:
            artifact.check(self._record(digest), only)

    def restore(self) -> None:
        """Copy the kept records to their places."""
        payloads.restore_from(self.results, self.stages, self.kept)
        self.kept = {}

    def _done(self, digest: str) -> bool:
        return digest in self.kept or os.path.exists(self._records[digest])

    def _record(self, digest: str) -> Path:
        """Folder of the record of a stage that is done."""
        return self.kept.get(digest) or self.folder(digest)

    def folder(self, digest: str) -> Path:
        """The artifact folder of a stage of the plans."""
        return artifact.folder(self.results, self.stages[digest].kind, digest)

    def threads(self) -> "Given":
        """CPU threads of all processes of a stage."""
        return self._given(lambda run: run.cores())

    def resources(self) -> dict[str, "Given"]:
        """Resources of a stage by Snakemake's names. Memory is in MiB, runtime in minutes; an empty name, or none, leaves the
        choice to the cluster."""
        of_run: dict[str, Callable[[execution.Run], int | str]] = {
            "mem_mb": lambda run: run.memory(),
            "runtime": lambda run: run.runtime,
            "gpu": lambda run: run.gpus,
            "gpu_model": lambda run: (self.site.gpu_model or "") if run.gpus else "",
            "slurm_partition": lambda run: slurm.partition_of(self.site, run.gpus),
        }
        if any(stage.run.stack > 1 for stage in self.stages.values()):
            of_run["stack"] = lambda run: int(run.stack > 1)  # `--resources stack=N`: most jobs of stacks at once
        if any(stage.run.nodes > 1 for stage in self.stages.values()):
            of_run["nodes"] = lambda run: run.nodes
        same = {**slurm.named_resources(self.site), "slurm_extra": slurm.sbatch_options(self.site)}
        given = {name: self._given(function) for name, function in of_run.items()}
        return {**same, **{name: value for name, value in given.items() if value != ""}}

    def _given(self, function: Callable[[execution.Run], int | str]) -> "Given":
        """What all stages of the plans have, or a look-up of each stage's by its wildcards: Snakemake takes longer to call a
        function than to use a value, several times a job. A job reads the run block of its own stage."""
        made: dict[str, Stage | slurm.Shared] = {**self.stages, **self.shared}
        values = {digest: function(one.run) for digest, one in made.items()}
        if len(set(values.values())) == 1:
            return next(iter(values.values()))

        def look_up(wildcards: Any) -> int | str:
            if wildcards.digest in values:
                return values[wildcards.digest]
            planned = artifact.read_json(artifact.find(self.results, wildcards.digest) / "stage.json")
            return function(execution.Run(**planned["run"]))

        return with_wildcards(look_up)

    def write_stages(self) -> None:
        """Write `stage.json` for every stage that is not done, and remove failures: a new start may succeed. A stage that came
        through DVC or from a kept record is done and lacks the file, too."""
        commit, peers = artifact.current_commit(), workers.peers_of(self.to_make())
        names = {stage.digest: plan.address(stage) for plan in reversed(self.plans) for stage in plan.stages.values()}
        for stage in self.stages.values():
            folder = self.folder(stage.digest)
            if not artifact.done(folder):
                (folder / "failure.json").unlink(missing_ok=True)
                more = {"peers": peers[stage.digest]} if stage.digest in peers else {}
                known = {**stage.as_json(), "address": names[stage.digest]}
                artifact.write_json(folder / "stage.json", {**known, "commit": commit, **more})
            elif not (folder / "stage.json").exists():
                artifact.write_json(folder / "stage.json", stage.as_json())
        slurm.write_shared(self.results, self.shared.values(), self.stages, self.site)

    def link(self) -> list[Path]:
        """Readable links: `by-name/<study>.<scale>/report` and `.../<arm>/<stage>@<seed>`; returns the reports."""
        finished = (plan for plan in self.plans if not self.missing([plan.report]))
        return [catalog.link_study(self.results, plan, self.by_name(plan)) for plan in finished]

    def by_name(self, plan: Plan) -> Path:
        """The folder of a study's readable links."""
        return self.results / "by-name" / payloads.folder_name(plan)


def with_wildcards(function: Callable[[Any], T]) -> Callable[[Any], T]:
    """The function with its signature on it: Snakemake asks for it before each call, and Python would work it out anew."""
    function.__signature__ = SIGNATURE  # type: ignore[attr-defined]
    return function


# -- when the Snakefile is parsed --------------------------------------------------------------------------------------


def open_graph(root: Path, config: dict[str, Any], main_process: bool) -> Graph:
    """The graph of this run. An error in the studies is printed in one line by the main process, which raises SystemExit(2)."""
    metrics.log_to_stderr()
    results = Path("results")
    if not main_process:
        slurm.forward_signals(root / "configs")
        return Graph(results, [])
    try:
        _check_writable(results)
        (names, scale), keys = choices.chosen(root / "configs", config), choices.given_keys(config)
        plans = [expand.plan_study(root / "configs", name, scale, keys) for name in names]
        graph = Graph(results, plans, slurm.load_site(root / "configs"))
        graph.edited, graph.finished = bool(keys), str(config.get("finished", "false")).lower() == "true"
        graph.kept = payloads.restorable_records(results, graph.stages, payloads.stored_kinds(results))
        _check_warning_time(graph)
        for plan in plans:
            if plan.pilot is not None and not plan.design["exploratory"] and graph.missing([plan.report]):
                from interplay.report.stats import power  # scipy: most launches go without

                power.refuse_short(plan, power.planned_power(plan, lambda digest: None))
        if graph.to_make():
            made = _check_needs(graph, choices.hour_limits(config))
            seconds = {digest: time.seconds for digest, time in made.times.items()}
            graph.share(slurm.share(graph.to_make(), seconds, choices.shared_minutes(config), graph.site))
        graph.check_payloads()
        for folder in graph.partial:
            payloads.check_obtainable(folder)
        gc.freeze()  # the plans stay until the end: Python need not search them for garbage while Snakemake makes its jobs
        gc.set_threshold(100_000)  # and most of what it makes stays, too
        return graph
    except model.UserError as error:
        LOG.error("interplay: %s", error)
        raise SystemExit(2) from None


def _check_writable(results: Path) -> None:
    if results.is_symlink() and not results.exists():
        raise model.UserError(f"{results}: a link to {results.readlink()}, which is not there; make that folder, or another link")
    existing = next(path for path in (results, *results.absolute().parents) if path.exists())
    if not os.access(existing, os.W_OK | os.X_OK) or not existing.is_dir():
        raise model.UserError(f"{results}: not writable; make it so with chmod, or run from a folder of your own")


def _check_warning_time(graph: Graph) -> None:
    """Raises UserError where the signal before a stage's time limit may come at its start: Slurm may be a minute early."""
    least = graph.site.warn_seconds // 60 + 2
    for stage in graph.to_make():
        if stage.run.runtime < least:
            limit = f"the time limit of {stage.label} is shorter (run.runtime: {stage.run.runtime}, kind {stage.kind})"
            remedy = f"grant it {least} minutes or more, or warn later"
            raise model.UserError(f"configs/site.yaml: warn_seconds = {graph.site.warn_seconds}: {limit}; {remedy}")


def _check_needs(graph: Graph, limits: dict[str, float]) -> estimate.Estimate:
    """Reserve the memory of the stages to make, and return the estimate. Raises UserError when that, or their hours, are more
    than is allowed."""
    found = state.scan_results(graph.results)
    found |= {digest: state.Found(graph.stages[digest].kind, state.KEPT) for digest in graph.kept}
    made = estimate.estimate_launch(state.Library(graph.stages, graph.results, found), found)
    estimate.refuse_over_limits("--config", made, limits.get("max_gpu_hours"), limits.get("max_hours"))
    for plan in graph.plans:
        estimate.refuse_unfit(plan.study, plan, made, graph.results)
    for digest, need in made.memory.items():
        stage = graph.stages[digest]
        graph.stages[digest] = replace(stage, run=estimate.with_memory(stage.run, need))
    return made


def check_external(stages: Iterable[Stage]) -> None:
    """Raises UserError with one line for all of these stages, which are to be made and lack an input or an engine."""
    if missing := dict.fromkeys(error for stage in stages if (error := lacking_input(stage))):
        raise model.UserError("; ".join(missing))


def lacking_input(stage: Stage) -> str | None:
    """Why a stage cannot be made here: its file is not in its place or differs, its model has no place, or its engine, trainer or
    adapters are not installed; None: it can. A model's folder was read by the plan already."""
    try:
        if isinstance(stage.spec, DatasetSpec):
            from interplay.data.foreign import find_file  # NumPy and pyarrow, for studies that read files alone

            find_file(stage.spec, stage.run)
        elif isinstance(stage.spec, SourceSpec) and stage.spec.sha256 and not stage.run.path:
            return stage.spec.without_folder()
        engine, trainer, lora = (getattr(stage.spec, key, None) for key in ("engine", "trainer", "lora"))
        asked = {"vllm": engine == "vllm" and trainer != "verl", "trl": trainer == "trl", "lora": lora is not None}
        asked["verl"] = trainer == "verl" and not shutil.which(stage.run.verl.python)
        return next(filter(None, (metrics.without_extra(extra) for extra, is_asked in asked.items() if is_asked)), None)
    except model.UserError as error:
        return str(error)


# -- before and after the jobs; never in a job or a dry run ------------------------------------------------------------


def on_start(graph: Graph, cores: int | None = None) -> None:
    """Before the first job: check files from outside the graph, write every `stage.json`, fetch payloads from DVC, and warn of
    drift. The jobs share `cores` of this machine; None: they run elsewhere. An error is printed in one line and raises
    SystemExit(2)."""
    try:
        if graph.finished:
            raise model.UserError("--config finished=true: only for `snakemake --report FILE`; leave it out to run stages")
        logging.getLogger("snakemake.logging").addFilter(_is_no_false_alarm)
        forkserver.end_with_launcher()
        if cores:
            resources.launch_cores(cores)
        check_external(graph.to_make())
        graph.restore()
        graph.write_stages()
        _fetch_payloads(graph)
    except model.UserError as error:
        LOG.error("interplay: %s", error)
        raise SystemExit(2) from None
    done = [(stage.kind, digest) for digest, stage in graph.stages.items() if artifact.done(graph.folder(digest))]
    for line in state.drift_advisory(state.drifted_stages(graph.results, done), MOST_DRIFTED):
        LOG.warning("interplay: %s", line)
    live.begin(graph.plans, graph.results)
    if cores and graph.site.fork_server and len(made := graph.to_make()) > 1:
        graph.server = forkserver.Launched([kind for kind in KINDS if any(stage.kind == kind for stage in made)])


def _is_no_false_alarm(record: logging.LogRecord) -> bool:
    """Whether a message of Snakemake is other than that the record of a failed stage, which never was, cannot be restored."""
    return "record.json: no backup found" not in record.getMessage()


def _fetch_payloads(graph: Graph) -> None:
    """Raises UserError when a payload is stored nowhere, or differs from its record."""
    if not graph.partial:
        return
    count = payloads.fetch_payloads(graph.partial)
    for folder in graph.partial:
        artifact.check(folder)
    LOG.info("interplay: %s files of %s stages fetched from DVC", count, len(graph.partial))


def on_success(graph: Graph) -> None:
    """After the last job, when all succeeded; also when there was nothing to do and `on_start` was not called."""
    if graph.server:
        graph.server.close()
    graph.restore()
    for plan in graph.plans:
        shutil.rmtree(graph.by_name(plan) / "partial", ignore_errors=True)
    for page in graph.link():
        print(f"report: {page}")
    graph.write_stages()
    try:
        for plan in graph.plans:
            payloads.keep_study(graph.results, plan)
        if os.environ.get(payloads.SWITCH) != "0":
            payloads.add_payloads(graph.results, graph.plans)
    except (model.UserError, OSError) as error:
        LOG.warning("interplay: not stored: %s; the results are complete, and `interplay store push` tries again", error)
    live.finish()


def on_error(graph: Graph) -> None:
    """After the last job, when one failed: links, partial reports, and as Snakemake's last lines the causes and what to do."""
    if graph.server:
        graph.server.close()
    try:
        graph.link()
        left = [plan for plan in graph.plans if graph.missing([plan.report])]
        for plan in left:
            model.print_visible(partial_report(graph, plan))
        state.say_last(left, graph.results, Path("logs"), graph.edited)
    finally:  # an error in a report must not leave runs in MLflow as RUNNING
        live.finish()


def partial_report(graph: Graph, plan: Plan) -> str:
    """Write the report of an unfinished study; returns a line with its place, or with the error."""
    from interplay.report.write import page as write_page  # pandas and matplotlib, which a run without a failure does not need

    try:
        spec, stages = plan.report_spec(), plan.stages_json()
        page = write_page.render_partial(spec, stages, graph.results, graph.by_name(plan) / "partial")
    except (model.UserError, OSError) as error:
        return f"no partial report of {plan.study}: {error}"
    return f"partial report: {page}"
