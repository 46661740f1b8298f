"""`interplay adopt`."""

import argparse
import re
from pathlib import Path

from interplay.cli.common import CONFIGS, RESULTS
from interplay.schema.base import UserError
from interplay.schema.terminal import say


def arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    parser.add_argument(
        "folder", type=Path, help="a Hugging Face model folder, a GGUF file, or a finished artifact: OTHER/results/KIND/DIGEST"
    )
    parser.add_argument("--study", help="the study that is to use the model, new or not; names the file in what is printed")
    parser.add_argument("--stage", default="base", help="the stage's name there (default base)")
    parser.add_argument("--inputs", action="store_true", help="of an artifact: adopt all that it rests on, too")


def run(args: argparse.Namespace) -> int:
    """Copy it in, and say how a study names it."""
    from interplay import adopt
    from interplay.report.units import quantity
    from interplay.store import artifact

    if args.study and not re.fullmatch(r"[\w-]+(/[\w-]+)*", args.study):
        raise UserError(f"--study = {args.study!r}: must be a file's name below {CONFIGS}/study, without .yaml")
    if not args.stage.isidentifier():
        raise UserError(f"--stage = {args.stage!r}: must be a word, such as base")
    if (args.folder / "record.json").exists():
        made = adopt.artifacts(args.folder, RESULTS, args.inputs)
        say(f"adopted {', '.join(made)}" if made else f"{args.folder.name} was here already, whole")
        return 0
    is_gguf = args.folder.suffix == ".gguf" and args.folder.is_file()
    if not is_gguf and not (args.folder / "config.json").exists():
        raise UserError(f"{args.folder}: neither a model (config.json, or a .gguf file) nor a finished artifact (record.json)")
    checksum, out, made_now = (adopt.gguf if is_gguf else adopt.model)(args.folder, RESULTS, args.stage)
    parameters = artifact.record(out)["metrics"]["parameters"]
    say(f"{'adopted' if made_now else 'here already:'} {out}, {quantity(parameters)} parameters")
    say(f"in {_file(args.study)}:\n")
    say(f"stages:\n  {args.stage}: {{kind: source, sha256: {checksum}}}")
    say(f"arms:\n  {args.stage}: {{path: [{args.stage}]}}")
    return 0


def _file(study: str | None) -> str:
    """Where to write what is printed."""
    from interplay.study import compose

    if not study:
        return "a study"
    return f"{CONFIGS}/study/{study}.yaml" + ("" if study in compose.studies(CONFIGS) else " (a new file)")
