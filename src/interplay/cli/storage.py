"""Commands that keep results: `interplay verify`, `interplay gc` and `interplay store`."""

import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from interplay.cli.common import (
    CONFIGS,
    MOST_HOURS,
    RESULTS,
    STUDY,
    Grid,
    Scale,
    argument,
    command,
    complete_stage,
    complete_study,
    default_scale,
    find_elsewhere,
    new_app,
    option,
    show_parts,
)
from interplay.core.model import UserError, plural, print_visible

if TYPE_CHECKING:
    from interplay.results import garbage
    from interplay.study.plan import Plan


app = new_app()


@command(
    app,
    "verify",
    examples="""
interplay verify  # everything in results
interplay verify edge  # what a study uses
""",
)
def verify_files(
    what: Annotated[
        str | None,
        argument(
            "a study, or a stage by its digest or by-name path (default: everything in results/)", autocompletion=complete_stage
        ),
    ] = None,
    scale: Scale = None,
) -> None:
    """Checks that the files of finished stages are there and have the checksums of their records, that each record lies under
    the digest of its own content, and says which stages were made by sources that read otherwise now."""
    from interplay.core.metrics import Progress
    from interplay.core.model import quantity
    from interplay.results import state, verify_artifact

    folders, unfinished = _chosen_folders(what, scale)
    checked = [verify_artifact.of_record(folder) for folder in folders]
    files = [file for record in checked for file in record.files]
    progress = Progress(len(files), "files")
    damage = [wrong for record in checked for wrong in record.damage] + list(verify_artifact.find_damage(files, progress.update))
    for wrong in damage:
        print_visible(wrong.line)
    for line in state.drift_advisory(state.drifted_stages(RESULTS, [(folder.parent.name, folder.name) for folder in folders])):
        print_visible(textwrap.fill(line, 100))
    size = quantity(sum(file.size for file in files))
    whole = f"{plural(len(folders), 'finished stage')} ({plural(len(files), 'file')}, {size} bytes)"
    if damage:
        stages = len({wrong.stage for wrong in damage})
        raise UserError(
            f"verify: {stages} of {whole} not as recorded; `interplay store pull` restores what the remote has, and a stage "
            "whose folder is removed is made again"
        )
    print_visible(f"{whole}: all as recorded{f'; {unfinished} not finished' if unfinished else ''}")


def _chosen_folders(what: str | None, scale: str | None) -> tuple[list[Path], int]:
    """Folders of the finished stages to check, and how many stages of the study are not finished."""
    from interplay.core import artifact
    from interplay.results import catalog, state
    from interplay.study import compose
    from interplay.study.expand import plan_study

    if what is None:
        folders = [artifact.folder(RESULTS, one.kind, digest) for digest, one in sorted(state.scan(RESULTS).items())]
    elif what in compose.studies(CONFIGS):
        plan = plan_study(CONFIGS, what, scale or default_scale())
        folders = [artifact.folder(RESULTS, stage.kind, digest) for digest, stage in plan.stages.items()]
    else:
        known = catalog.read(CONFIGS, RESULTS)
        digest = catalog.resolve(what, known, CONFIGS, scale or default_scale()).digest
        folders = [artifact.folder(RESULTS, known.stages[digest]["kind"], digest)]
        if not artifact.done(folders[0]):
            raise UserError(f"{folders[0]}: not finished, so there is nothing to verify")
    finished = [folder for folder in folders if artifact.done(folder)]
    return finished, len(folders) - len(finished)


@command(
    app,
    "gc",
    examples="""
interplay gc  # what would go, and how much room that frees
interplay gc --older-than 7 --delete  # remove what was last written to a week ago or more
""",
)
def collect_garbage(
    delete: Annotated[bool, option("--delete", help="remove what is listed; without it nothing is touched")] = False,
    older_than: Annotated[
        float,
        option(
            "--older-than",
            metavar="DAYS",
            min=0,
            max=MOST_HOURS,
            help="only results that were last written to so many days ago (default 1; 0: all)",
        ),
    ] = 1.0,
    lock: Annotated[
        list[Path] | None, option("--lock", metavar="FILE", help="another lock whose stages stay; may be repeated")
    ] = None,
    full: Annotated[bool, option("--full", help="list every folder and file")] = False,
) -> None:
    """Lists, and when asked removes, results that nothing leads to: no lock in configs/plans, no by-name link of a study that
    has no lock yet, no run in flight. Also links, logs and benchmarks of stages that are gone. Without --delete nothing is
    touched."""
    from interplay.results import garbage

    found = garbage.find(CONFIGS, RESULTS, lock or [], older_than)
    show_parts(*_garbage_table(found))
    if full:
        for item in found.results:
            print_visible(f"{item.folder}  {item.state}, {item.days:.1f} days old")
        for path in [*found.links, *found.logs, *found.leftovers]:
            print_visible(str(path))
    if not (found.results or found.links or found.logs or found.leftovers):
        leads = "a lock in configs/plans, a link in by-name/ of a study that has none, or a run in flight"
        print_visible(f"nothing to remove: {leads} leads to all there is")
    elif not delete:
        print_visible("nothing was touched; --delete removes it" + ("" if full else ", --full lists it"))
    else:
        kept = garbage.remove(found, RESULTS)
        for line in kept:
            print_visible(line)
        print_visible(
            f"removed {len(found.results) - len(kept)} results, {len(found.links)} links, {len(found.logs)} logs and benchmarks"
        )


def _garbage_table(found: "garbage.Garbage") -> list[str | Grid]:
    """Numbers and sizes per kind, finished and not, and what else there is."""
    from interplay.core.model import quantity

    rows = []
    for kind in sorted({item.kind for item in found.results}):
        items = [item for item in found.results if item.kind == kind]
        done = sum(item.state == "done" for item in items)
        days = f"{min(i.days for i in items):.0f}-{max(i.days for i in items):.0f}"
        rows.append((kind, str(done), str(len(items) - done), quantity(sum(i.size for i in items)), days))
    parts: list[str | Grid] = []
    if rows:
        size = quantity(sum(item.size for item in found.results))
        head = ("kind", "finished", "not", "bytes", "days old")
        parts += ["results that nothing leads to:", Grid(head, rows, right=range(1, len(head)))]
        parts += [f"in all {len(found.results)} results, {size} bytes"]
    others = {
        "links in by-name/ that are out of date": found.links,
        "logs and benchmarks of stages that are gone": found.logs,
        "folders that an interrupted removal left": found.leftovers,
    }
    parts += [f"{len(paths)} {what}" for what, paths in others.items() if paths]
    return [*parts, f"{found.young} results too young (--older-than)"] if found.young else parts


@command(
    app,
    "store",
    examples="""
interplay store push  # keep what is finished
interplay store pull edge  # fetch what a study needs
""",
)
def sync_store(
    do: Annotated[
        Literal["push", "pull", "status"],
        argument(
            "push: add what is finished to DVC and send it to the remote; pull: bring what is not here; status: what is where"
        ),
    ],
    study: Annotated[
        str | None, argument(f"{STUDY} (default: those of configs/config.yaml)", autocompletion=complete_study)
    ] = None,
    scale: Scale = None,
    records: Annotated[
        bool, option("--records", help="pull no payloads: records and what tables are made from, megabytes")
    ] = False,
) -> None:
    """Moves payloads and records to the DVC remote or back. A clone with the small records alone can rebuild every table;
    weights and samples are fetched when something needs them."""
    from interplay.results import payloads
    from interplay.study import compose
    from interplay.study.expand import plan_study

    if not payloads.in_project():
        raise UserError(f"{Path.cwd()}: no git repository with DVC here; `git init && dvc init` make one")
    names, default = compose.chosen(CONFIGS, {})
    plans = [plan_study(CONFIGS, name, scale or default) for name in ([study] if study else names)]
    {"push": _push_stages, "pull": _pull_records if records else _pull_stages, "status": _show_status}[do](plans)


def _push_stages(plans: "list[Plan]") -> None:
    from interplay.results import kept, payloads

    for plan in plans:
        kept.keep(RESULTS, plan)
    new = payloads.add(RESULTS, plans)
    pointers = [str(path) for path in sorted(RESULTS.glob("*.dvc"))]
    if not pointers:
        launch = f"snakemake all --config study={plans[0].study} scale={plans[0].scale}"
        raise UserError(f"{RESULTS}: nothing finished yet; run `{launch}`")
    payloads.dvc("push", "--quiet", *pointers)
    print_visible(f"{len(new)} folders added and everything pushed" + (f"; commit {RESULTS}/*.dvc" if new else ""))


def _pull_stages(plans: "list[Plan]") -> None:
    """Everything, except that what no pointer lists stays where it is."""
    from interplay.core import artifact
    from interplay.results import payloads

    folders = _stage_folders(plans)
    wanted = [folder for folder in folders if not _is_whole(folder)]
    known = payloads.stored(wanted)
    count = payloads.fetch(sorted(known))
    for folder in sorted(known):
        artifact.check(folder)
    here, nowhere = len(folders) - len(wanted), len(wanted) - len(known)
    print_visible(f"{count} files of {len(known)} stages pulled; {here} were here, {nowhere} are not stored")


def _pull_records(plans: "list[Plan]") -> None:
    from interplay.results import kept, payloads

    count = payloads.fetch([RESULTS / payloads.STUDIES / kept.name(plan) for plan in plans])
    back = [kept.restore(RESULTS, plan.stages, payloads.kinds(RESULTS)) for plan in plans]
    print_visible(f"{count} files pulled, {sum(map(len, back))} records put in place; `snakemake all` makes the tables from them")


def _show_status(plans: "list[Plan]") -> None:
    """Whose stages these are, and one row a kind: stages of the plans, finished, here with all their files, and known to DVC."""
    from interplay.core import artifact
    from interplay.kinds.table import KINDS
    from interplay.results import payloads

    folders = _stage_folders(plans)
    known = payloads.stored(folders)
    print_visible(f"{', '.join(plan.study for plan in plans)} at scale {plans[0].scale}")
    if where := "; ".join(f"{plan.study} {found}" for plan in plans if (found := find_elsewhere(plan))):
        print_visible(where)
    rows = []
    for kind in KINDS:
        if of_kind := [folder for folder in folders if folder.parent.name == kind]:
            counts = (sum(map(artifact.done, of_kind)), sum(map(_is_whole, of_kind)), sum(folder in known for folder in of_kind))
            rows.append((kind, str(len(of_kind)), *map(str, counts)))
    show_parts(Grid(("kind", "stages", "finished", "here", "stored"), rows, right=range(1, 5)))


def _stage_folders(plans: "list[Plan]") -> list[Path]:
    """Artifact folders of all stages, each once."""
    from interplay.core import artifact

    return list(dict.fromkeys(artifact.folder(RESULTS, s.kind, d) for plan in plans for d, s in plan.stages.items()))


def _is_whole(folder: Path) -> bool:
    from interplay.core import artifact

    return artifact.done(folder) and not artifact.absent(folder)
