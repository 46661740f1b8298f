"""`interplay verify`."""

import argparse
import textwrap
from pathlib import Path

from interplay.cli.common import CONFIGS, RESULTS, default_scale, scale_argument
from interplay.schema.base import UserError, plural
from interplay.schema.terminal import say
from interplay.store import artifact


def arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    parser.add_argument(
        "what", nargs="?", help="a study, or a stage by its digest or by-name path (default: everything in results/)"
    )
    scale_argument(parser)


def run(args: argparse.Namespace) -> int:
    """List what is wrong one a line, then where the sources have moved on, then how it stands."""
    from interplay.report.units import quantity
    from interplay.store import verify
    from interplay.store.metrics import Progress
    from interplay.study import drift

    folders, unfinished = _chosen(args.what, args.scale)
    checked = [verify.of_record(folder) for folder in folders]
    files = [file for record in checked for file in record.files]
    progress = Progress(len(files), "files")
    damage = [wrong for record in checked for wrong in record.damage] + list(verify.damage(files, progress.update))
    for wrong in damage:
        say(wrong.line)
    for line in drift.advisory(drift.drifted(RESULTS, [(folder.parent.name, folder.name) for folder in folders])):
        say(textwrap.fill(line, 100))
    size = quantity(sum(file.size for file in files))
    whole = f"{plural(len(folders), 'finished stage')} ({plural(len(files), 'file')}, {size} bytes)"
    if damage:
        stages = len({wrong.stage for wrong in damage})
        raise UserError(
            f"verify: {stages} of {whole} not as recorded; `interplay store pull` restores what the remote has, and a stage "
            "whose folder is removed is made again"
        )
    say(f"{whole}: all as recorded{f'; {unfinished} not finished' if unfinished else ''}")
    return 0


def _chosen(what: str | None, scale: str | None) -> tuple[list[Path], int]:
    """Folders of the finished stages to check, and how many stages of the study are not finished."""
    from interplay.study import catalog, compose, state
    from interplay.study.graph import plan_study

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
