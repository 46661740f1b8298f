"""Which data and which models a stage took and made, in MLflow's terms: an evaluation leads to its model, a model to the run
that made it, that run to its data and to the model it started from."""

import json
from typing import TYPE_CHECKING, Any, Final

from interplay.core import artifact
from interplay.kinds.table import SETS
from interplay.study.plan import Stage
from interplay.track import describe

if TYPE_CHECKING:
    from interplay.track.mirror import Mirror


DATA = (*SETS, "corpus")
"""Kinds that are shown as datasets."""
BARRED = str.maketrans({"/": " ", ".": "·", ":": " ", "%": " ", '"': None, "'": None})
"""What MLflow allows in no model's name, such as the point of an arm `rl[learning_rate=0.1]`, -> what stands there."""
READY: Final = "READY"
"""Status of a model that its run is known to have made."""


def models(client: Any, experiment: str) -> tuple[dict[str, str], dict[str, str]]:
    """`digest` or `digest@step` -> id, for the models of the experiment: those that are ready, and those whose making was
    interrupted."""
    known: dict[str, str] = {}
    begun: dict[str, str] = {}
    token = None
    while True:
        page = client.search_logged_models([experiment], max_results=500, page_token=token)
        for model in page:
            if "stage.digest" in model.tags:
                (known if str(model.status) == READY else begun).setdefault(model.tags["stage.digest"], model.model_id)
        token = page.token
        if not token:
            return known, begun


def inputs(mirror: "Mirror", stage: Stage) -> tuple[list[Any], list[Any]]:
    """Datasets and models among the dependencies of a stage. The problem sets behind a corpus count as its trainer's data too,
    and what these were curated from as theirs."""
    from mlflow.entities import DatasetInput, InputTag, LoggedModelInput

    given: dict[str, str] = {}
    taken: list[str] = []
    if stage.kind == "report":
        return [], []
    for role, ref in stage.deps.items():
        dep = mirror.plan.stages[artifact.split_ref(ref)[0]]
        if dep.kind in DATA:
            use = _use(stage.kind, role)
            given.setdefault(dep.digest, use)
            for inner, digest in dep.deps.items():
                if inner.startswith("data."):
                    given.setdefault(digest, use if dep.kind == "corpus" else "source")
        else:
            model = model_of(mirror, ref)
            taken += [model] if model else []
    datasets = [DatasetInput(dataset(mirror, digest), [InputTag("mlflow.data.context", use)]) for digest, use in given.items()]
    return datasets, [LoggedModelInput(model) for model in dict.fromkeys(taken)]


def _use(kind: str, role: str) -> str:
    """What a stage takes data for, as MLflow's page says it."""
    if kind == "evaluate":
        return "evaluation"
    if kind in SETS:
        return "comparison" if role.startswith("against") else "source"
    return "validation" if role == "validation" else "training"


def dataset(mirror: "Mirror", digest: str) -> Any:
    """A problem set or a corpus as MLflow shows it. It stays where it is; the digest is the stage's."""
    from mlflow.entities import Dataset

    stage = mirror.plan.stages[digest]
    out = artifact.folder(mirror.results, stage.kind, digest)
    told = artifact.record(out)["metrics"] if artifact.done(out) else {}
    rows = told.get("size", told.get("rows"))
    profile = {"num_rows": rows} if rows is not None else {}
    return Dataset(
        name=describe.run_name(stage, None),
        digest=digest,
        source_type="local",
        source=json.dumps({"uri": f"results/{stage.kind}/{digest}"}),
        profile=json.dumps(profile),
    )


def model_of(mirror: "Mirror", ref: str) -> str | None:
    """Id of the model of a stage or of a checkpoint that it keeps; None where it has none. The stage is mirrored if need be."""
    if ref not in mirror.models:
        mirror.stage(artifact.split_ref(ref)[0])
    return mirror.models.get(ref)


def outputs(mirror: "Mirror", run: Any, stage: Stage, record: dict[str, Any]) -> None:
    """Register the models that a stage made: its last one, and each checkpoint that it keeps. Their files stay in results/."""
    made = {0: stage.digest} if any(name.startswith("model/") for name in record["files"]) else {}
    kept = {name.split("/")[1] for name in record["files"] if name.startswith("checkpoints/")}
    made |= {int(step): f"{stage.digest}@{step}" for step in sorted(kept, key=int)}
    place = mirror.places.get(stage.digest)
    name = describe.run_name(stage, place)
    where = {"arm": place.arm, "stage": place.stage, "seed": str(place.seed)} if place else {}
    for step, ref in made.items():
        if ref in mirror.models:
            continue
        if ref not in mirror.begun:
            model = mirror.client.create_logged_model(
                mirror.experiment,
                name=f"{name.translate(BARRED)}{f' step {step}' if step else ''}",
                source_run_id=run.info.run_id,
                tags={"stage.digest": ref, "path": f"results/{stage.kind}/{ref.replace('@', '/checkpoints/')}/model"},
                params={**where, "kind": stage.kind},
                model_type="checkpoint",
            )
            mirror.begun[ref] = model.model_id
        _made_by(mirror, run, mirror.begun[ref], step or int(record["metrics"].get("steps", 0)))
        mirror.client.finalize_logged_model(mirror.begun[ref], READY)
        mirror.models[ref] = mirror.begun.pop(ref)


def _made_by(mirror: "Mirror", run: Any, model: str, step: int) -> None:
    """Say of a run that it made a model, once: MLflow would count it again."""
    from mlflow.entities import LoggedModelOutput

    told = mirror.client.get_run(run.info.run_id).outputs
    if model not in [output.model_id for output in (told.model_outputs if told else [])]:
        mirror.client.log_outputs(run.info.run_id, [LoggedModelOutput(model, step)])


def subject(mirror: "Mirror", stage: Stage) -> dict[str, Any]:
    """Whose numbers an evaluation's are: the model's, on the problem set. {} where its model is not known."""
    model = model_of(mirror, stage.deps["model"])
    if model is None:
        return {}
    data = mirror.plan.stages[stage.deps["data"]]
    return {"model_id": model, "dataset_name": describe.run_name(data, None), "dataset_digest": data.digest}
