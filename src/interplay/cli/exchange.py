"""Import and export: `interplay adopt`, `interplay export` and `interplay track`."""

import re
import time
import uuid
from pathlib import Path
from typing import Annotated

from interplay.cli import common
from interplay.cli.common import CONFIGS, RESULTS, argument, command, flag, option
from interplay.core import artifact, metrics, model
from interplay.kinds.table import KINDS
from interplay.study.plan import Plan

app = common.new_app()


@command(app, "adopt")
def adopt_model(
    folder: Annotated[
        Path, argument("a Hugging Face model folder, a GGUF file, or a finished artifact: OTHER/results/KIND/DIGEST")
    ],
    study: Annotated[
        str | None,
        option(
            "--study",
            "the study that will use the model, new or not; names the file in the output",
            complete=common.complete_study,
        ),
    ] = None,
    stage: Annotated[str, option("--stage", "the stage's name there (default base)")] = "base",
    inputs: Annotated[bool, flag("--inputs", "of an artifact: adopt all that it depends on, too")] = False,
) -> None:
    """Adds a model from outside to the graph as a stage, so that studies can start from it. Its identity is the content of its
    files.

    Examples:
        interplay adopt /models/base  # a Hugging Face folder
    """
    from interplay.api import adopt

    if study and not re.fullmatch(r"[\w-]+(/[\w-]+)*", study):
        raise model.UserError(f"--study = {study!r}: must be a file's name below {CONFIGS}/study, without .yaml")
    if not stage.isidentifier():
        raise model.UserError(f"--stage = {stage!r}: must be a word, such as base")
    if (folder / "record.json").exists():
        made = adopt.adopt_artifacts(folder, RESULTS, inputs)
        model.print_visible(f"adopted {', '.join(made)}" if made else f"{folder.name} was here already, complete")
        return
    is_gguf = folder.suffix == ".gguf" and folder.is_file()
    if not is_gguf and not (folder / "config.json").exists():
        raise model.UserError(f"{folder}: neither a model (config.json, or a .gguf file) nor a finished artifact (record.json)")
    checksum, out, made_now = (adopt.adopt_gguf if is_gguf else adopt.adopt_model)(folder, RESULTS, stage)
    parameters = artifact.record(out)["metrics"]["parameters"]
    model.print_visible(f"{'adopted' if made_now else 'here already:'} {out}, {metrics.quantity(parameters)} parameters")
    model.print_visible(f"in {_study_file(study)}:\n")
    model.print_visible(f"stages:\n  {stage}: {{kind: source, sha256: {checksum}}}")
    model.print_visible(f"arms:\n  {stage}: {{path: [{stage}]}}")


def _study_file(study: str | None) -> str:
    """Where to write the printed lines."""
    from interplay.study import expand

    if not study:
        return "a study"
    return f"{CONFIGS}/study/{study}.yaml" + ("" if study in expand.studies(CONFIGS) else " (a new file)")


@command(app, "export")
def export_study(
    output: Annotated[
        Path,
        option(
            "--output",
            "a folder that is new, empty or an older export; or a file for verdicts and numbers alone, to be committed as "
            "docs/results/STUDY.SCALE.json, from which `make docs` writes docs/papers.md",
            short="-o",
            metavar="FOLDER|FILE.json",
        ),
    ],
    study: common.AnyStudy = None,
    scale: common.Scale = None,
    summary_file: Annotated[
        Path | None, option("--from", "draw tables and figures of such a file; no results are needed", metavar="FILE.json")
    ] = None,
) -> None:
    """Writes a finished study to one self-contained folder: page, records, lock and the list of the environment.

    Examples:
        interplay export edge -o edge  # to the folder edge; open edge/index.html
    """
    if (study is None) == (summary_file is None):
        raise model.UserError("export: name a study, or with --from a file such as docs/results/edge.laptop.json")
    from interplay.report.write import export, summary  # pandas and matplotlib: not for a mistyped study

    if summary_file is not None:
        export.write_drawn(summary_file, output)
        model.print_visible(f"export: {output / 'README.md'}")
        return
    plan = common.plan_of(str(study), scale)
    if hint := common.hint_other_scale(plan):
        raise model.UserError(common.no_results(plan, hint))
    if output.suffix == ".json":
        summary.write_summary(plan, RESULTS, output)
        model.print_visible(f"export: {output}")
        return
    export.write_export(plan, CONFIGS, RESULTS, output)
    model.print_visible(f"export: {output / 'index.html'}")


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
        raise model.UserError("track sync: name a study, or give --all")
    if study is None:
        plans = [plan for plan in common.every_plan() if _was_launched(plan)]
    else:
        plans = [common.plan_of(study, scale)]
        if not _is_started(plans[0]):
            raise model.UserError(f"track sync: {RESULTS} has nothing of study {study} at scale {plans[0].scale}")
    failed = []
    for plan in plans:
        try:
            model.print_visible(_mirror_plan(plan, to))
        except model.UserError as error:
            if not every:
                raise
            failed.append(f"{plan.study} at {plan.scale}: {error}")
    if failed:
        raise model.UserError("; ".join(failed))


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
            states = mirror.Mirror(plan, RESULTS, uri).everything()
            live.mark_mirrored(plan, RESULTS, uri, states)
    except Exception as error:
        raise model.UserError(f"track sync: {store.redacted_reason(uri, error)}") from None
    found = ", ".join(f"{list(states.values()).count(status)} {status}" for status in dict.fromkeys(states.values()))
    spent = time.monotonic() - begun
    return f"{plan.study} at {plan.scale}: {found or 'nothing started yet'}; {store.redacted(uri)}, {spent:.1f} s"
