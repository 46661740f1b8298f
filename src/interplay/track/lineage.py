"""Datasets and models of a stage in MLflow's terms: what a run took, the models that it made, and whose numbers are whose."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from interplay.core import artifact
from interplay.kinds.table import makes
from interplay.study.plan import Plan, Stage
from interplay.track import describe

DATA = ("problems", "corpus")
"""What is shown as a dataset (`Kind.makes`)."""
BARRED = str.maketrans({"/": " ", ".": "·", ":": " ", "%": " ", '"': None, "'": None})
"""What MLflow allows in no model's name, such as the point of an arm `rl[learning_rate=0.1]`, -> its replacement."""
READY: Final = "READY"
"""Status of a model that its run is known to have made."""


class Lineage:
    """The models of a study's experiment, by stage. `bring` mirrors the stage of a digest."""

    def __init__(
        self,
        plan: Plan,
        results: Path,
        client: Any,
        experiment: str,
        places: Mapping[str, describe.Place],
        bring: Callable[[str], Any],
    ) -> None:
        self.plan, self.results, self.client, self.experiment = plan, results, client, experiment
        self.places, self.bring = places, bring
        self.models, self.begun = _logged_models(client, experiment)

    def inputs_of(self, stage: Stage) -> tuple[list[Any], list[Any]]:
        """Datasets and models among the dependencies of a stage. The problem sets of a corpus count as its trainer's data too,
        and what these were curated from as theirs."""
        from mlflow.entities import DatasetInput, InputTag, LoggedModelInput

        given: dict[str, str] = {}
        taken: list[str] = []
        if makes(stage.kind) == "report":
            return [], []
        for role, ref in stage.deps.items():
            dep = self.plan.stages[artifact.split_ref(ref)[0]]
            if makes(dep.kind) in DATA:
                use = _use(stage.kind, role)
                given.setdefault(dep.digest, use)
                for inner, digest in dep.deps.items():
                    if inner.startswith("data."):
                        given.setdefault(digest, use if makes(dep.kind) == "corpus" else "source")
            else:
                model = self._model_of(ref)
                taken += [model] if model else []
        datasets = [
            DatasetInput(self._dataset_of(digest), [InputTag("mlflow.data.context", use)]) for digest, use in given.items()
        ]
        return datasets, [LoggedModelInput(model) for model in dict.fromkeys(taken)]

    def _dataset_of(self, digest: str) -> Any:
        """A problem set or a corpus as MLflow shows it. It stays where it is; the digest is the stage's."""
        from mlflow.entities import Dataset

        stage = self.plan.stages[digest]
        out = artifact.folder(self.results, stage.kind, digest)
        known_of = artifact.record(out)["metrics"] if artifact.done(out) else {}
        rows = known_of.get("size", known_of.get("rows"))
        profile = {"num_rows": rows} if rows is not None else {}
        return Dataset(
            name=describe.run_name(stage, None),
            digest=digest,
            source_type="local",
            source=json.dumps({"uri": f"results/{stage.kind}/{digest}"}),
            profile=json.dumps(profile),
        )

    def _model_of(self, ref: str) -> str | None:
        """Id of the model of a stage or of a checkpoint that it keeps; None where it has none. The stage is mirrored first."""
        if ref not in self.models:
            self.bring(artifact.split_ref(ref)[0])
        return self.models.get(ref)

    def register_models(self, run: Any, stage: Stage, record: dict[str, Any]) -> None:
        """Register the models that a stage made: its last one, and each checkpoint that it keeps. Files stay in results/."""
        from mlflow.entities import LoggedModelOutput

        made = {0: stage.digest} if any(name.startswith("model/") for name in record["files"]) else {}
        kept = {name.split("/")[1] for name in record["files"] if name.startswith("checkpoints/")}
        made |= {int(step): f"{stage.digest}@{step}" for step in sorted(kept, key=int)}
        place = self.places.get(stage.digest)
        name = describe.run_name(stage, place)
        where = {"arm": place.arm, "stage": place.stage, "seed": str(place.seed)} if place else {}
        for step, ref in made.items():
            if ref in self.models:
                continue
            known = ref in self.begun
            if not known:
                model = self.client.create_logged_model(
                    self.experiment,
                    name=f"{name.translate(BARRED)}{f' step {step}' if step else ''}",
                    source_run_id=run.info.run_id,
                    tags={"stage.digest": ref, "path": f"results/{stage.kind}/{ref.replace('@', '/checkpoints/')}/model"},
                    params={**where, "kind": stage.kind},
                    model_type="checkpoint",
                )
                self.begun[ref] = model.model_id
            if not (known and self._is_made_by(run, self.begun[ref])):  # MLflow would count it again
                output = LoggedModelOutput(self.begun[ref], step or int(record["metrics"].get("steps", 0)))
                self.client.log_outputs(run.info.run_id, [output])
            self.client.finalize_logged_model(self.begun[ref], READY)
            self.models[ref] = self.begun.pop(ref)

    def _is_made_by(self, run: Any, model: str) -> bool:
        """Whether the run says already that it made the model."""
        known_of = self.client.get_run(run.info.run_id).outputs
        return model in [output.model_id for output in (known_of.model_outputs if known_of else [])]

    def evaluated_model(self, stage: Stage) -> dict[str, Any]:
        """Whose numbers an evaluation's are: the model's, on the problem set. {} where its model is not known."""
        model = self._model_of(stage.deps["model"])
        if model is None:
            return {}
        data = self.plan.stages[stage.deps["data"]]
        return {"model_id": model, "dataset_name": describe.run_name(data, None), "dataset_digest": data.digest}


def _logged_models(client: Any, experiment: str) -> tuple[dict[str, str], dict[str, str]]:
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


def _use(kind: str, role: str) -> str:
    """What a stage takes data for, as MLflow's page says it."""
    if makes(kind) == "samples":
        return "evaluation"
    if makes(kind) == "problems":
        return "comparison" if role.startswith("against") else "source"
    return "validation" if role == "validation" else "training"
