"""`interplay lineage`."""

import argparse
from pathlib import Path

from interplay.cli.common import CONFIGS, RESULTS, default_scale, scale_argument
from interplay.schema.base import UserError
from interplay.schema.terminal import say

FORMATS = {".svg": "svg", ".mmd": "mermaid", ".md": "mermaid"}
"""Ending of a file -> what is written into it."""


def arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    parser.add_argument("what", metavar="study|digest", help="a study, or a stage as `interplay show` takes it")
    scale_argument(parser)
    parser.add_argument("--format", choices=["mermaid", "svg"], help="default: by the file's ending, else mermaid")
    parser.add_argument("--across", type=int, default=8, help="boxes side by side in an SVG, at most (default 8; 3 for a phone)")
    parser.add_argument("-o", "--output", type=Path, help="write to this file")


def run(args: argparse.Namespace) -> int:
    """Draw what a study consists of, or what a stage rests on: stages that differ only in their seed as one box."""
    from interplay.report.collapse import mermaid, picture
    from interplay.report.diagram import svg
    from interplay.store import artifact, state
    from interplay.study.lineage import behind

    if args.across < 1:
        raise UserError(f"--across = {args.across}: must be at least 1")
    stages = behind(args.what, CONFIGS, RESULTS, args.scale or default_scale())
    states = {digest: state.of(artifact.folder(RESULTS, stage["kind"], digest)).name for digest, stage in stages.items()}
    nodes, edges = picture(stages, {digest: "new" if name == "missing" else name for digest, name in states.items()})
    form = args.format or (FORMATS.get(args.output.suffix, "mermaid") if args.output else "mermaid")
    drawn = svg(nodes, edges, args.across) if form == "svg" else mermaid(nodes, edges)
    if args.output is None:
        say(drawn, end="")
        return 0
    try:
        artifact.write_atomic(args.output, drawn.encode())
    except OSError as error:
        raise UserError(f"-o {args.output}: {error.strerror}; name a file in a folder that can be written") from None
    say(f"wrote {args.output}: {len(stages)} stages in {len(nodes)} boxes")
    return 0
