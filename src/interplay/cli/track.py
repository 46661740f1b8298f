"""`interplay track`."""

import argparse
import time
import uuid

from interplay.cli.common import CONFIGS, RESULTS, default_scale, scale_argument
from interplay.schema.base import UserError
from interplay.schema.kinds import SETS
from interplay.schema.terminal import say
from interplay.store import artifact
from interplay.study import compose
from interplay.study.graph import plan_study
from interplay.study.plan import Plan


def arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    what = parser.add_subparsers(dest="what", required=True, metavar="sync")
    sync = what.add_parser(
        "sync",
        help="bring a store to what the records say",
        description="Replay records into an MLflow store; what is there already is left as it is. Then `mlflow ui` shows it.",
    )
    sync.add_argument("study", nargs="?", help="a file below configs/study, without .yaml")
    scale_argument(sync)
    sync.add_argument("--all", action="store_true", help="every study at every scale of which there are results")
    sync.add_argument("--to", metavar="URI", help="the store (default: MLFLOW_TRACKING_URI, else sqlite:///mlflow.db)")


def run(args: argparse.Namespace) -> int:
    """Mirror the studies, one after the other."""
    if bool(args.study) == bool(args.all):
        raise UserError("track sync: name a study, or say --all")
    if args.all:
        pairs = [(study, scale) for study in compose.studies(CONFIGS) for scale in compose.scales(CONFIGS)]
        plans = [plan for plan in (plan_study(CONFIGS, study, scale) for study, scale in pairs) if _started(plan)]
    else:
        plans = [plan_study(CONFIGS, args.study, args.scale or default_scale())]
        if not _started(plans[0]):
            raise UserError(f"track sync: {RESULTS} has nothing of study {args.study} at scale {plans[0].scale}")
    failed = []
    for plan in plans:
        try:
            say(_sync(plan, args.to))
        except UserError as error:
            if not args.all:
                raise
            failed.append(f"{plan.study} at {plan.scale}: {error}")
    if failed:
        raise UserError("; ".join(failed))
    return 0


def _started(plan: Plan) -> bool:
    """Whether a model or an evaluation of the study was made: data and tokenizers are shared between studies."""
    own = [stage for stage in plan.stages.values() if stage.kind not in (*SETS, "corpus", "tokenizer", "source")]
    return any(artifact.done(artifact.folder(RESULTS, stage.kind, stage.digest)) for stage in own)


def _sync(plan: Plan, to: str | None) -> str:
    from interplay.track import marker
    from interplay.track.mirror import Mirror
    from snakemake_logger_plugin_mlflow import redact, store

    uri, begun = store.uri_of(to), time.monotonic()
    try:
        with marker.turn(RESULTS, uuid.uuid4().hex):
            states = Mirror(plan, RESULTS, uri).everything()
            marker.settle(plan, RESULTS, uri, states)
    except Exception as error:
        raise UserError(f"track sync: {redact.reason(uri, error)}") from None
    found = ", ".join(f"{list(states.values()).count(status)} {status}" for status in dict.fromkeys(states.values()))
    spent = time.monotonic() - begun
    return f"{plan.study} at {plan.scale}: {found or 'nothing started yet'}; {redact.shown(uri)}, {spent:.1f} s"
