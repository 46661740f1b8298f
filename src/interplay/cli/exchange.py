"""Commands that take models in and hand results out: `interplay adopt`, `interplay export` and `interplay track`."""

import re
import time
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from interplay.cli.common import (
    CONFIGS,
    RESULTS,
    AnyStudy,
    Scale,
    argument,
    command,
    complete_study,
    find_elsewhere,
    new_app,
    nothing_of,
    option,
    plan_of,
)
from interplay.core.model import UserError, print_visible

if TYPE_CHECKING:
    from interplay.study.plan import Plan


app = new_app()


@command(app, "adopt", examples="interplay adopt /models/base  # a Hugging Face folder")
def adopt_model(
    folder: Annotated[
        Path, argument("a Hugging Face model folder, a GGUF file, or a finished artifact: OTHER/results/KIND/DIGEST")
    ],
    study: Annotated[
        str | None,
        option(
            "--study",
            metavar="STUDY",
            help="the study that is to use the model, new or not; names the file in what is printed",
            autocompletion=complete_study,
        ),
    ] = None,
    stage: Annotated[str, option("--stage", metavar="STAGE", help="the stage's name there (default base)")] = "base",
    inputs: Annotated[bool, option("--inputs", help="of an artifact: adopt all that it rests on, too")] = False,
) -> None:
    """Takes a model that was made elsewhere into the graph as a stage, so that studies can start from it. Its identity is the
    content of its files."""
    from interplay.api import adopt
    from interplay.core import artifact
    from interplay.core.model import quantity

    if study and not re.fullmatch(r"[\w-]+(/[\w-]+)*", study):
        raise UserError(f"--study = {study!r}: must be a file's name below {CONFIGS}/study, without .yaml")
    if not stage.isidentifier():
        raise UserError(f"--stage = {stage!r}: must be a word, such as base")
    if (folder / "record.json").exists():
        made = adopt.adopt_artifacts(folder, RESULTS, inputs)
        print_visible(f"adopted {', '.join(made)}" if made else f"{folder.name} was here already, whole")
        return
    is_gguf = folder.suffix == ".gguf" and folder.is_file()
    if not is_gguf and not (folder / "config.json").exists():
        raise UserError(f"{folder}: neither a model (config.json, or a .gguf file) nor a finished artifact (record.json)")
    checksum, out, made_now = (adopt.adopt_gguf if is_gguf else adopt.adopt_model)(folder, RESULTS, stage)
    parameters = artifact.record(out)["metrics"]["parameters"]
    print_visible(f"{'adopted' if made_now else 'here already:'} {out}, {quantity(parameters)} parameters")
    print_visible(f"in {_study_file(study)}:\n")
    print_visible(f"stages:\n  {stage}: {{kind: source, sha256: {checksum}}}")
    print_visible(f"arms:\n  {stage}: {{path: [{stage}]}}")


def _study_file(study: str | None) -> str:
    """Where to write what is printed."""
    from interplay.study import compose

    if not study:
        return "a study"
    return f"{CONFIGS}/study/{study}.yaml" + ("" if study in compose.studies(CONFIGS) else " (a new file)")


@command(app, "export", examples="interplay export edge -o edge  # to the folder edge; open edge/index.html")
def export_study(
    output: Annotated[
        Path,
        option(
            "-o",
            "--output",
            metavar="FOLDER|FILE.json",
            help="a folder that is new, empty or an older export; or a file for verdicts and numbers alone, to be committed as "
            "docs/results/STUDY.SCALE.json, from which `make docs` writes docs/papers.md",
        ),
    ],
    study: AnyStudy = None,
    scale: Scale = None,
    summary_file: Annotated[
        Path | None,
        option("--from", metavar="FILE.json", help="draw tables and figures of such a file; no results are needed"),
    ] = None,
) -> None:
    """Writes one folder that stands for a finished study on its own: page, records, lock and the list of the environment."""
    if (study is None) == (summary_file is None):
        raise UserError("export: name a study, or with --from a file such as docs/results/edge.laptop.json")
    from interplay.report.write import export, summary  # pandas and matplotlib: not for a mistyped study

    if summary_file is not None:
        export.write_drawn(summary_file, output)
        print_visible(f"export: {output / 'README.md'}")
        return
    plan = plan_of(str(study), scale)
    if where := find_elsewhere(plan):
        raise UserError(nothing_of(plan, where))
    if output.suffix == ".json":
        summary.write_summary(plan, RESULTS, output)
        print_visible(f"export: {output}")
        return
    export.write_export(plan, CONFIGS, RESULTS, output)
    print_visible(f"export: {output / 'index.html'}")


track = new_app()
app.add_typer(track, name="track", epilog="interplay track sync  # bring the store up to date")


@track.callback()
def track_results() -> None:
    """Mirrors records and metrics of finished stages into MLflow. The store is named by MLFLOW_TRACKING_URI, else it is a
    SQLite file. Repeating it changes nothing."""


@command(track, "sync")
def sync_track(
    study: AnyStudy = None,
    scale: Scale = None,
    every: Annotated[bool, option("--all", help="every study at every scale of which there are results")] = False,
    to: Annotated[
        str | None, option("--to", metavar="URI", help="the store (default: MLFLOW_TRACKING_URI, else sqlite:///mlflow.db)")
    ] = None,
) -> None:
    """Replay records into an MLflow store; what is there already is left as it is. Then `mlflow ui` shows it."""
    from interplay.study import compose
    from interplay.study.expand import plan_study

    if bool(study) == every:
        raise UserError("track sync: name a study, or say --all")
    if study is None:
        pairs = [(name, at) for name in compose.studies(CONFIGS) for at in compose.scales(CONFIGS)]
        plans = [plan for plan in (plan_study(CONFIGS, name, at) for name, at in pairs) if _is_started(plan)]
    else:
        plans = [plan_of(study, scale)]
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


def _is_started(plan: "Plan") -> bool:
    """Whether a model or an evaluation of the study was made: data and tokenizers are shared between studies."""
    from interplay.core import artifact
    from interplay.kinds.table import SETS

    own = [stage for stage in plan.stages.values() if stage.kind not in (*SETS, "corpus", "tokenizer", "source")]
    return any(artifact.done(artifact.folder(RESULTS, stage.kind, stage.digest)) for stage in own)


def _mirror_plan(plan: "Plan", to: str | None) -> str:
    from interplay.track import live
    from interplay.track.mirror import Mirror
    from snakemake_logger_plugin_mlflow import store

    uri, begun = store.uri_of(to), time.monotonic()
    try:
        with live.mirror_turn(RESULTS, uuid.uuid4().hex):
            states = Mirror(plan, RESULTS, uri).everything()
            live.mark_mirrored(plan, RESULTS, uri, states)
    except Exception as error:
        raise UserError(f"track sync: {store.redacted_reason(uri, error)}") from None
    found = ", ".join(f"{list(states.values()).count(status)} {status}" for status in dict.fromkeys(states.values()))
    spent = time.monotonic() - begun
    return f"{plan.study} at {plan.scale}: {found or 'nothing started yet'}; {store.redacted(uri)}, {spent:.1f} s"
