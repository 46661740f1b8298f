"""`interplay debug`."""

import argparse
import shutil
import tempfile
import traceback
from pathlib import Path

from interplay.cli.common import CONFIGS, RESULTS, default_scale, whole
from interplay.schema.base import PermanentError, UserError
from interplay.schema.terminal import say
from interplay.store import artifact


def arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    parser.add_argument("stage", help="a digest's beginning, or STUDY/ARM/seedN/STAGE; also one that failed or was never made")
    parser.add_argument("--into", type=Path, help="scratch folder (default: a temporary one, removed when all bytes agree)")
    parser.add_argument("--steps", type=whole(1), help="of a training stage: a shorter one of its own, compared with nothing")
    parser.add_argument("--pdb", action="store_true", help="open the debugger where it fails")


def run(args: argparse.Namespace) -> int:
    """Make the stage, then lay its bytes beside the record.

    Exit code 1 when they differ or it fails, 3 when trying again would not help."""
    from interplay import debug
    from interplay.study import catalog

    known = catalog.read(CONFIGS, RESULTS)
    stage = known.stages[catalog.resolve(args.stage, known, CONFIGS, default_scale()).digest]
    recorded = artifact.folder(RESULTS, stage["kind"], stage["digest"])
    if (recorded / "stage.json").exists():  # its run block is the one that the record was made with
        stage = artifact.read_json(recorded / "stage.json")
    if args.steps is not None:
        stage = debug.shortened(stage, args.steps)
    if args.into and args.into.absolute().is_relative_to(RESULTS.absolute()):
        raise UserError(f"--into {args.into}: lies in {RESULTS}, which debug never writes to; name another folder")
    scratch = args.into or Path(tempfile.mkdtemp(prefix="interplay-debug-"))
    try:
        out = debug.prepare(stage, RESULTS, scratch)
        failed = _make(out, args.pdb)
    except UserError:
        _forget(scratch, args)
        raise
    if failed:
        say(f"failed; what it wrote lies in {out}", error=True)
        return failed
    if args.steps is not None or not artifact.done(recorded):
        say(f"made in {out}; {'a stage of its own' if args.steps is not None else 'no record'}, nothing to compare with")
        return 0
    differing = debug.compared(out, recorded)
    if differing:
        say("\n".join([f"made in {out}; differs from {recorded} in", *differing]))
        return 1
    count = len(artifact.record(out)["files"])
    say(f"identical: {count} file{'' if count == 1 else 's'} and all metrics, as in {recorded}")
    _forget(scratch, args)
    return 0


def _make(out: Path, debugger: bool) -> int:
    """Run the stage in this process; returns its exit code. Raises UserError for what the user can mend, unless debugging; where
    another error is behind it, such as one in a function of the study's own, that is shown with its place."""
    from interplay.stage import run_stage

    try:
        run_stage(out)
        return 0
    except KeyboardInterrupt:
        return 130
    except Exception as error:
        if debugger:
            import pdb

            say(traceback.format_exc(), end="", error=True)
            pdb.post_mortem(error.__traceback__)
            return 1
        if isinstance(error, UserError) and error.__cause__ is None:
            raise
        if isinstance(error, PermanentError):
            say(f"interplay: {error}", error=True)
            return 3
        say(traceback.format_exc(), end="", error=True)
        return 1


def _forget(scratch: Path, args: argparse.Namespace) -> None:
    """Remove a scratch folder that nobody asked for by name. What it links to stays."""
    if args.into is None:
        shutil.rmtree(scratch, ignore_errors=True)
