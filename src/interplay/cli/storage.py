"""Storage of results, and their export: `interplay gc`, `store`, `export` and `track`."""

import os
import shutil
import subprocess
import sys
import time
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from interplay.cli import common
from interplay.cli.common import CONFIGS, RESULTS, argument, command, flag, option
from interplay.core import artifact, metrics
from interplay.core.model import UserError, nearest_name, plural, print_visible
from interplay.kinds.table import KINDS
from interplay.results import payloads
from interplay.study.plan import Plan

if TYPE_CHECKING:
    from interplay.results import storage


app = common.new_app()


@command(app, "gc")
def collect_garbage(
    delete: Annotated[bool, flag("--delete", "remove what is listed; without it nothing is removed")] = False,
    older_than: Annotated[
        float,
        option("--older-than", "only results last written to at least this many days ago (default 1; 0: all)", **common.DAYS),
    ] = 1.0,
    lock: Annotated[
        list[Path] | None, option("--lock", "another lock whose stages are kept; may be repeated", metavar="FILE")
    ] = None,
    full: Annotated[bool, flag("--full", "list every folder and file")] = False,
) -> None:
    """Garbage collection: lists, and with --delete removes, results that no lock in configs/plans, no by-name link of a study
    without a lock, and no run in flight needs; and links, logs and benchmarks of stages that no longer exist.

    Examples:
        interplay gc  # what would be removed, and its size
        interplay gc --older-than 7 --delete  # remove what was last written to a week ago or earlier
    """
    from interplay.results import storage

    found = storage.find_garbage(CONFIGS, RESULTS, lock or [], older_than)
    common.show_parts(*_garbage_table(found))
    if full:
        for item in found.results:
            print_visible(f"{item.folder}  {item.state}, {item.days:.1f} days old")
        for path in [*found.links, *found.logs, *found.leftovers]:
            print_visible(str(path))
    if not (found.results or found.links or found.logs or found.leftovers):
        print_visible(
            "nothing to remove: all results are in a lock, in by-name/ of a study without a lock, or in a run in flight"
        )
    elif not delete:
        print_visible("nothing was removed; --delete removes it" + ("" if full else ", --full lists it"))
    else:
        kept = storage.remove_garbage(found, RESULTS)
        for line in kept:
            print_visible(line)
        print_visible(
            f"removed {len(found.results) - len(kept)} results, {len(found.links)} links, {len(found.logs)} logs and benchmarks"
        )


def _garbage_table(found: "storage.Garbage") -> list[str | common.Grid]:
    """Numbers and sizes by kind, finished and unfinished, and numbers of other files."""
    by_kind: dict[str, list[storage.Item]] = {}
    for item in sorted(found.results, key=lambda item: item.kind):
        by_kind.setdefault(item.kind, []).append(item)
    rows = []
    for kind, items in by_kind.items():
        done = sum(item.state == "done" for item in items)
        days = f"{min(i.days for i in items):.0f}-{max(i.days for i in items):.0f}"
        rows.append((kind, str(done), str(len(items) - done), metrics.quantity(sum(i.size for i in items)), days))
    parts: list[str | common.Grid] = []
    if rows:
        size = metrics.quantity(sum(item.size for item in found.results))
        head = ("kind", "finished", "unfinished", "bytes", "days old")
        parts += ["unreachable results:", common.Grid(head, rows, right=range(1, len(head)))]
        parts += [f"total: {len(found.results)} results, {size} bytes"]
    others = {
        "outdated links in by-name/": found.links,
        "logs and benchmarks of stages that no longer exist": found.logs,
        "folders left by an interrupted removal": found.leftovers,
    }
    parts += [f"{len(paths)} {what}" for what, paths in others.items() if paths]
    return [*parts, f"{found.young} results too recent (--older-than)"] if found.young else parts


@command(app, "store")
def sync_store(
    do: Annotated[
        Literal["push", "pull", "status", "keep", "rebuild"],
        argument(
            "push: add what is finished to DVC and send it to the remote; pull: fetch what is missing here; status: what is "
            "where; keep: write the scores of a finished study to data/scores, to be committed; rebuild: make tables, verdicts, "
            "metrics and plots from these, which `dvc repro` does"
        ),
    ],
    study: Annotated[
        str | None, argument(f"{common.STUDY} (default: those of configs/config.yaml)", common.complete_study)
    ] = None,
    scale: common.Scale = None,
    records: Annotated[bool, flag("--records", "pull only records and the inputs of tables: megabytes, no payloads")] = False,
) -> None:
    """Copies payloads and records to the DVC remote or back. A clone with only the small records can rebuild every table; weights
    and samples are fetched when a stage needs them.

    Examples:
        interplay store push  # store what is finished
        interplay store pull edge  # fetch what a study needs
        interplay store rebuild demo --scale laptop  # tables and verdicts from the committed scores, without training
    """
    from interplay.study import choices

    if do in ("keep", "rebuild"):
        if study is None:
            raise UserError(f"store {do}: name a study")
        {"keep": _keep_scores, "rebuild": _rebuild_tables}[do](common.plan_of(study, scale))
        return
    if not payloads.in_project():
        raise UserError(f"{Path.cwd()}: no git repository with DVC; `git init && dvc init` make one")
    plans = [common.plan_of(name, scale) for name in ([study] if study else choices.chosen(CONFIGS, {})[0])]
    {"push": _push_stages, "pull": _pull_records if records else _pull_stages, "status": _show_status}[do](plans)


def _push_stages(plans: list[Plan]) -> None:
    for plan in plans:
        payloads.keep_study(RESULTS, plan)
    new = payloads.add_payloads(RESULTS, plans)
    pointers = [str(path) for path in sorted(RESULTS.glob("*.dvc"))]
    if not pointers:
        launch = f"snakemake all --config study={plans[0].study} scale={plans[0].scale}"
        raise UserError(f"{RESULTS}: nothing finished yet; run `{launch}`")
    payloads.run_dvc("push", "--quiet", *pointers)
    print_visible(f"{len(new)} folders added and everything pushed" + (f"; commit {RESULTS}/*.dvc" if new else ""))


def _keep_scores(plan: Plan) -> None:
    from interplay.results import storage

    path = storage.bundle_path(plan)
    storage.write_bundle(plan, RESULTS, path)
    print_visible(f"{path}: {metrics.quantity(path.stat().st_size)} bytes; commit it")


def _rebuild_tables(plan: Plan) -> None:
    """What `dvc repro` runs: from the committed scores to the report, by Snakemake, and to what DVC shows. Trains nothing unless
    the environment says so."""
    from interplay.results import storage

    if not plan.locked(CONFIGS):
        lock = plan.lock_path(CONFIGS)
        raise UserError(f"{lock}: not this plan; `interplay plan {plan.study} --scale {plan.scale} --write` brings it up to date")
    path = storage.bundle_path(plan)
    changed = storage.unpack_bundle(path, plan, RESULTS) if path.exists() else []
    computes = storage.check_consent(plan, RESULTS, path, os.environ.get(storage.COMPUTE) == "1")
    if changed:
        shutil.rmtree(artifact.folder(RESULTS, "report", plan.report), ignore_errors=True)
    quiet = {} if computes else {payloads.SWITCH: "0"}  # a report alone needs no store, and pointers would be new files
    profile = os.environ.get("SNAKEMAKE_PROFILE") or "local"
    words = ["snakemake", "all", "--profile", profile, "--config", f"study={plan.study}", f"scale={plan.scale}"]
    done = subprocess.run([sys.executable, "-m", *words], env={**os.environ, **quiet}, check=False)
    if done.returncode:
        raise UserError(f"store rebuild: Snakemake ended with exit code {done.returncode}; its last lines say why")
    storage.write_shown(plan, RESULTS, Path("docs/results"))


def _pull_stages(plans: list[Plan]) -> None:
    """Fetch the payloads that DVC's pointers list, and make pages again, which show what was not here."""

    folders = _stage_folders(plans)
    stored = payloads.stored_folders(folders)
    other = payloads.stored_otherwise(folder for folder in stored if artifact.done(folder))
    wanted = [folder for folder in folders if not _is_complete(folder) and folder not in other]
    known = stored.intersection(wanted)
    count = payloads.fetch_payloads(sorted(known))
    for folder in sorted(known):
        artifact.check(folder)
    present, unstored = len(folders) - len(wanted), len(wanted) - len(known)
    print_visible(f"{count} files of {len(known)} stages pulled; {present} were here, {unstored} are not stored")
    for plan in plans if count else []:
        page = artifact.folder(RESULTS, "report", plan.report) / "report.html"
        if page.exists():
            page.unlink()
            print_visible(common.report_lines(plan)[-1])
    for folder, numerics in sorted(other.items()):
        print_visible(f"{folder}: one digest, two contents: made here ({numerics}), and the store has another; keep one")
    if other:
        raise UserError("store pull: nothing of these was pulled; remove the folder of a stage to take what is stored")


def _pull_records(plans: list[Plan]) -> None:
    count = payloads.fetch_payloads([RESULTS / payloads.STUDIES / payloads.folder_name(plan) for plan in plans])
    back = [payloads.restore_records(RESULTS, plan.stages, payloads.stored_kinds(RESULTS)) for plan in plans]
    print_visible(f"{count} files pulled, {sum(map(len, back))} records restored; `snakemake all` makes the tables from them")


def _show_status(plans: list[Plan]) -> None:
    """The studies, and one row per kind: stages of the plans, finished, complete here, and known to DVC."""
    folders = _stage_folders(plans)
    known = payloads.stored_folders(folders)
    print_visible(f"{', '.join(plan.study for plan in plans)} at scale {plans[0].scale}")
    if hints := "; ".join(f"{plan.study} {hint}" for plan in plans if (hint := common.hint_other_scale(plan))):
        print_visible(hints)
    rows = []
    for kind in KINDS:
        if of_kind := [folder for folder in folders if folder.parent.name == kind]:
            stored = sum(folder in known for folder in of_kind)
            counts = (sum(map(artifact.done, of_kind)), sum(map(_is_complete, of_kind)), stored)
            rows.append((kind, str(len(of_kind)), *map(str, counts)))
    common.show_parts(common.Grid(("kind", "stages", "finished", "here", "stored"), rows, right=range(1, 5)))


def _stage_folders(plans: list[Plan]) -> list[Path]:
    """Artifact folders of all stages, each once."""
    return list(dict.fromkeys(artifact.folder(RESULTS, s.kind, d) for plan in plans for d, s in plan.stages.items()))


def _is_complete(folder: Path) -> bool:
    return artifact.done(folder) and not artifact.absent(folder)


# -- import and export ---------------------------------------------------------------------------------------------------


@command(app, "export")
def export_study(
    output: Annotated[
        Path,
        option(
            "--output",
            "a folder that is new, empty or an older export; or a file for verdicts and numbers alone, to be committed as "
            "docs/results/STUDY.SCALE.json.gz, from which `make docs` writes docs/papers.md",
            short="-o",
            metavar="FOLDER|FILE.json.gz",
        ),
    ],
    study: common.AnyStudy = None,
    scale: common.Scale = None,
    summary_file: Annotated[
        Path | None, option("--from", "draw tables and figures of such a file; no results are needed", metavar="FILE.json.gz")
    ] = None,
    is_paper: Annotated[
        bool, flag("--paper", "figures as PDF and PGF, tables in LaTeX, BibTeX and a paper.tex that compiles")
    ] = False,
    is_inspect: Annotated[bool, flag("--inspect", "the samples of its evaluations as logs of Inspect (.eval)")] = False,
    width: Annotated[
        Literal["column", "text"] | None,
        option("--width", "of a paper: column (two columns of 3.25 in, default) or text (one of 5.5 in)"),
    ] = None,
    font: Annotated[
        str | None, option("--font", "of a paper's figures: times (default) or a family that matplotlib finds", metavar="NAME")
    ] = None,
) -> None:
    """Writes a finished study to one self-contained folder: page, records, lock and the list of the environment; or what a paper
    needs of it.

    Examples:
        interplay export edge -o edge  # to the folder edge; open edge/index.html
        interplay export edge --paper -o paper  # then compile paper/paper.tex
        interplay export edge --inspect -o logs  # then `inspect view --log-dir logs`
    """
    if (study is None) == (summary_file is None):
        raise UserError("export: name a study, or with --from a file such as docs/results/edge.laptop.json.gz")
    if not is_paper and (width or font):
        raise UserError(f"export: --{'width' if width else 'font'} belongs to --paper; add --paper or leave it out")
    is_file = output.name.endswith((".json", ".json.gz"))
    if is_inspect:
        if is_paper or summary_file or is_file:
            raise UserError(
                "export: --inspect writes the logs of a study's evaluations to a folder; leave --paper and --from out"
            )
        from interplay.api import single

        made = single.write_inspect(common.plan_of(str(study), scale), RESULTS, output)
        print_visible(f"export: {plural(len(made), 'log')} of Inspect in {output}")
        return
    if is_paper and is_file:
        raise UserError(f"--output = {output}: a paper is a folder; name one that is new, empty or an older export")
    from interplay.report.write import export, summary

    look = export.Look(width or "column", font or export.TIMES)
    export.check_font(look.font)
    page = output / ("paper.tex" if is_paper else "README.md" if summary_file else "index.html")
    if summary_file is not None and is_paper:
        from interplay.study import expand

        known = summary.read_known(summary_file)
        planned = common.plan_of(known["study"], known["scale"]) if known.get("study") in expand.studies(CONFIGS) else None
        export.paper_of_summary(summary_file, planned, output, look)
    elif summary_file is not None:
        export.write_drawn(summary_file, output)
    else:
        plan = common.plan_of(str(study), scale)
        if hint := common.hint_other_scale(plan):
            raise UserError(common.no_results(plan, hint))
        if is_paper:
            export.paper_of_study(plan, RESULTS, output, look)
        elif is_file:
            summary.write_summary(plan, RESULTS, output)
        else:
            export.write_export(plan, CONFIGS, RESULTS, output)
    print_visible(f"export: {output if is_file and summary_file is None else page}")


# Studies in MLflow.


STORES = ("sqlite", "file", "http", "https", "postgresql", "mysql", "mssql", "databricks", "uc")
"""Schemes of the stores that MLflow takes."""
track = common.new_app()
app.add_typer(track, name="track", epilog="interplay track sync  # bring the store up to date")


@track.callback()
def track_results() -> None:
    """Mirrors records and metrics of finished stages into MLflow. The store is that of MLFLOW_TRACKING_URI, else a SQLite file.
    Repeating it changes nothing."""


@command(track, "sync")
def sync_track(
    study: common.AnyStudy = None,
    scale: common.Scale = None,
    every: Annotated[bool, flag("--all", "every study at every scale that has results")] = False,
    to: Annotated[
        str | None, option("--to", "the store (default: MLFLOW_TRACKING_URI, else sqlite:///mlflow.db)", metavar="URI")
    ] = None,
) -> None:
    """Copy records into an MLflow store for `mlflow ui`; existing runs stay as they are."""
    if bool(study) == every:
        raise UserError("track sync: name a study, or give --all")
    scheme = (to or "").partition("://")[0].partition("+")[0]
    if to and "://" in to and scheme not in STORES:
        raise UserError(
            f"--to {to}: no store of MLflow{nearest_name(scheme, STORES)}; such as sqlite:///mlflow.db or https://HOST"
        )
    if study is None:
        plans = [plan for plan in common.launched_plans() if _was_launched(plan)]
    else:
        plans = [common.plan_of(study, scale)]
        if not _is_started(plans[0]):
            raise UserError(f"track sync: {RESULTS} has nothing of study {study} at scale {plans[0].scale}")
    failed = []
    for plan in plans:
        try:
            print_visible(_mirror_plan(plan, to))
        except UserError as error:
            if not every:
                raise
            failed.append(f"{plan.study} at {plan.scale}: {error}")
    if failed:
        raise UserError("; ".join(failed))


def _was_launched(plan: Plan) -> bool:
    """Whether a launch planned the study: it then wrote the report's `stage.json`. Finished stages may belong to another
    study."""
    folder = artifact.folder(RESULTS, "report", plan.report)
    return (folder / "stage.json").exists() or artifact.done(folder)


def _is_started(plan: Plan) -> bool:
    """Whether a model was trained or evaluated for the study: data, tokenizers and source models are shared between studies."""
    shared = ("problems", "tokenizer", "corpus")
    rows = {stage.digest: KINDS[stage.kind] for stage in plan.stages.values()}
    own = [digest for digest, row in rows.items() if row.makes not in shared and (row.makes != "model" or row.logged)]
    return any(artifact.done(artifact.folder(RESULTS, plan.stages[digest].kind, digest)) for digest in own)


def _mirror_plan(plan: Plan, to: str | None) -> str:
    from interplay.track import live, mirror
    from snakemake_logger_plugin_mlflow import store

    uri, begun = store.uri_of(to), time.monotonic()
    try:
        with live.mirror_turn(RESULTS, uuid.uuid4().hex):
            opened = mirror.Mirror(plan, RESULTS, uri)
            states = opened.everything()
            live.mark_mirrored(plan, RESULTS, uri, states, opened.experiment)
    except Exception as error:
        raise UserError(f"track sync: {store.redacted_reason(uri, error)}") from None
    found = ", ".join(f"{list(states.values()).count(status)} {status}" for status in dict.fromkeys(states.values()))
    spent = time.monotonic() - begun
    said = f"{plan.study} at {plan.scale}: {found or 'nothing started yet'}; {store.redacted(uri)}, {spent:.1f} s"
    return "\n".join([said, *live.address_lines(plan, uri, opened.experiment)])
