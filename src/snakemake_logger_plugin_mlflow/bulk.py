"""One transaction of a database that MLflow's client writes itself, in which new runs are inserted table by table.

MLflow opens a session for each call and makes an object of each row, which takes most of the time of a first mirror. In the block
its sessions join one transaction, each as a savepoint, as SQLAlchemy describes for external transactions; what its calls say of a
run or a model that began in the block is kept as rows until another call could see it, or until the end. The store's own methods
are called for everything else, and for all where its version or its tables are others than those that this module knows."""

import contextlib
import time
import uuid
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore
    from sqlalchemy.engine import Connection

VERSION = "3.17."
"""Of MLflow, whose calls leave the rows that are inserted here; another one is written by its calls."""
SECONDS, PAUSE, MOST_ROWS = 0.5, 0.02, 50_000
"""Between two commits at most, since each waits for the disk; after one, when other processes may write to a SQLite file (each
tries ten times a second, for 20 s); rows that wait."""
SQLITE_BEGIN = ("PRAGMA foreign_keys = ON", "PRAGMA busy_timeout = 20000", "PRAGMA case_sensitive_like = true", "BEGIN IMMEDIATE")
RUN_NAME = "mlflow.runName"
COLUMNS = {
    "SqlRun": "run_uuid name source_type source_name entry_point_name user_id status start_time end_time deleted_time "
    "source_version lifecycle_stage artifact_uri experiment_id",
    "SqlTag": "run_uuid key value",
    "SqlParam": "run_uuid key value",
    "SqlMetric": "run_uuid key value timestamp step is_nan",
    "SqlLatestMetric": "run_uuid key value timestamp step is_nan",
    "SqlLoggedModel": "model_id experiment_id name artifact_location creation_timestamp_ms last_updated_timestamp_ms status "
    "lifecycle_stage model_type source_run_id status_message",
    "SqlLoggedModelParam": "model_id experiment_id param_key param_value",
    "SqlLoggedModelTag": "model_id experiment_id tag_key tag_value",
    "SqlLoggedModelMetric": "model_id metric_name metric_timestamp_ms metric_step metric_value experiment_id run_id dataset_uuid "
    "dataset_name dataset_digest",
    "SqlDataset": "dataset_uuid experiment_id name digest dataset_source_type dataset_source dataset_schema dataset_profile",
    "SqlInput": "input_uuid source_type source_id destination_type destination_id step",
    "SqlInputTag": "input_uuid name value",
}
"""Table -> its columns, all of them, in an order in which rows may be inserted."""


class Transaction:
    """Rows of new runs and models, and the connection on which all is written; a context."""

    TAKEN_OVER = (
        "create_run",
        "log_batch",
        "update_run_info",
        "log_inputs",
        "log_outputs",
        "create_logged_model",
        "finalize_logged_model",
    )
    """Methods of the store that are replaced in the block."""

    def __init__(self, database: "SqlAlchemyStore") -> None:
        self.database, self.usual = database, database.ManagedSessionMaker
        self.ordinary = {name: getattr(database, name) for name in self.TAKEN_OVER}
        self.connection: Connection | None = None
        self.begun = 0.0
        self.experiments: dict[str, Any] = {}
        self._clear()

    def __enter__(self) -> "Transaction":
        self.database.ManagedSessionMaker = self._joined
        if fits(self.database):
            for name in self.TAKEN_OVER:
                setattr(self.database, name, getattr(self, name))
        return self

    def __exit__(self, failed: type[BaseException] | None, *_: object) -> None:
        try:
            if failed is None:
                self.commit()
        finally:
            self.database.ManagedSessionMaker = self.usual
            for name in self.TAKEN_OVER:
                vars(self.database).pop(name, None)
            if self.connection is not None:
                self.connection.close()

    def give_way(self) -> None:
        """Between two things that may be committed separately: commit what has waited for long or is much."""
        if self.count > MOST_ROWS or (self.connection is not None and time.monotonic() - self.begun > SECONDS):
            self.commit()
            time.sleep(PAUSE)

    def commit(self) -> None:
        """Write what is kept and commit; the next call begins anew."""
        self.flush()
        if self.connection is not None:
            self.connection.commit()
            self.connection.close()
            self.connection = None

    def _begin(self) -> "Connection":
        if self.connection is None:
            self.connection, self.begun = self.database.engine.connect(), time.monotonic()
            if self.connection.dialect.name == "sqlite":  # as MLflow sets them; the driver itself would begin too late
                for statement in SQLITE_BEGIN:
                    self.connection.exec_driver_sql(statement)
        return self.connection

    @contextlib.contextmanager
    def _joined(self, read_only: bool = True) -> Iterator[Any]:
        """A session of the store for one of its calls, which sees all that was written in the block."""
        from sqlalchemy.orm import Session

        if read_only and self.connection is None and not self.count:
            with self.usual() as session:
                yield session
            return
        self.flush()
        with Session(self._begin(), join_transaction_mode="create_savepoint") as session:
            yield session
            session.commit()

    # -- rows --------------------------------------------------------------------------------------------------------

    def _clear(self) -> None:
        self.count = 0
        self.rows: dict[str, list[tuple[Any, ...]]] = defaultdict(list)
        self.runs: dict[str, dict[str, Any]] = {}
        self.models: dict[str, dict[str, Any]] = {}
        self.tags: dict[tuple[str, str], str] = {}
        self.params: dict[tuple[str, str], str] = {}
        self.metrics: dict[tuple[Any, ...], None] = {}
        self.latest: dict[tuple[str, str], tuple[Any, ...]] = {}
        self.datasets: list[tuple[str, int, Any]] = []
        self.taken: set[tuple[str, ...]] = set()

    def flush(self) -> None:
        """Insert what is kept."""
        if not self.count:
            return
        connection, rows = self._begin(), self.rows
        rows["SqlRun"] = [tuple(run.values()) for run in self.runs.values()]
        rows["SqlLoggedModel"] = [tuple(model.values()) for model in self.models.values()]
        rows["SqlTag"] = [(*key, value) for key, value in self.tags.items()]
        rows["SqlParam"] = [(*key, value) for key, value in self.params.items()]
        rows["SqlMetric"] = list(self.metrics)
        rows["SqlLatestMetric"] = list(self.latest.values())
        self._resolve_datasets(connection)
        for name, columns in COLUMNS.items():
            if rows[name]:
                insert, names = _table(name).insert(), columns.split()
                connection.execute(insert, [dict(zip(names, row, strict=True)) for row in rows[name]])
        self._clear()

    def _resolve_datasets(self, connection: "Connection") -> None:
        """Inputs of runs; a dataset that the experiment has not is new."""
        if not self.datasets:
            return
        import sqlalchemy

        table = _table("SqlDataset")
        columns = table.c.experiment_id, table.c.name, table.c.digest, table.c.dataset_uuid
        experiments = {experiment for _, experiment, _ in self.datasets}
        found = connection.execute(sqlalchemy.select(*columns).where(table.c.experiment_id.in_(experiments)))
        known = {tuple(row[:3]): row[3] for row in found}
        for run_id, experiment, given in self.datasets:
            data = given.dataset
            key, input_id = (experiment, data.name, data.digest), uuid.uuid4().hex
            if key not in known:
                known[key] = uuid.uuid4().hex
                made = (known[key], *key, data.source_type, data.source, data.schema, data.profile)
                self.rows["SqlDataset"].append(made)
            self.rows["SqlInput"].append((input_id, "DATASET", known[key], "RUN", run_id, 0))
            self.rows["SqlInputTag"] += [(input_id, tag.key, tag.value) for tag in given.tags]

    # -- what the store is asked to do -------------------------------------------------------------------------------

    def _experiment(self, experiment_id: str) -> Any:
        """An active experiment, looked up once in the block."""
        if experiment_id not in self.experiments:
            found = self.database.get_experiment(experiment_id)
            self.database._check_experiment_is_active(found)
            self.experiments[experiment_id] = found
        return self.experiments[experiment_id]

    def create_run(self, experiment_id: str, user_id: str, start_time: int, tags: Sequence[Any], run_name: str | None) -> Any:
        """A run as rows, unless its name is left to MLflow."""
        from mlflow import entities

        names = {tag.key for tag in tags}
        if not run_name or RUN_NAME in names or len(names) < len(tags):
            return self.ordinary["create_run"](experiment_id, user_id, start_time, tags, run_name)
        place, run_id = self._experiment(experiment_id).artifact_location, uuid.uuid4().hex
        tags = [*tags, entities.RunTag(RUN_NAME, run_name)]
        info = entities.RunInfo(
            run_id=run_id,
            run_name=run_name,
            experiment_id=str(experiment_id),
            user_id=user_id,
            status="RUNNING",
            start_time=start_time,
            end_time=None,
            lifecycle_stage="active",
            artifact_uri=_below(place, run_id, "artifacts"),
        )
        self.runs[run_id] = {
            **{"run_uuid": run_id, "name": run_name, "source_type": "UNKNOWN", "source_name": "", "entry_point_name": ""},
            **{"user_id": user_id, "status": "RUNNING", "start_time": start_time, "end_time": None, "deleted_time": None},
            **{"source_version": "", "lifecycle_stage": "active", "artifact_uri": info.artifact_uri},
            "experiment_id": int(experiment_id),
        }
        self.tags |= {(run_id, tag.key): tag.value for tag in tags}
        self.count += 1 + len(tags)
        return entities.Run(info, entities.RunData(tags=tags), entities.RunInputs([]))

    def log_batch(self, run_id: str, metrics: Sequence[Any], params: Sequence[Any], tags: Sequence[Any]) -> None:
        """Parameters, points and tags of a run of the block, checked and cut as the store does."""
        from mlflow.utils import validation

        if run_id not in self.runs or any(tag.key == RUN_NAME for tag in tags):
            self.ordinary["log_batch"](run_id, metrics, params, tags)
            return
        metrics, params, tags = validation._validate_batch_log_data(metrics, params, tags)
        validation._validate_batch_log_limits(metrics, params, tags)
        validation._validate_param_keys_unique(params)
        if any(self.params.get((run_id, param.key), param.value) != param.value for param in params):
            self.ordinary["log_batch"](run_id, metrics, params, tags)  # which refuses it
            return
        self.params |= {(run_id, param.key): param.value for param in params}
        for metric in metrics:
            self._add_metric(run_id, metric)
        self.tags |= {(run_id, tag.key): tag.value for tag in tags}
        self.count += len(params) + 2 * len(metrics) + len(tags)

    def _add_metric(self, run_id: str, metric: Any) -> None:
        """A point once, the last one of its curve, and what it says of a model."""
        is_nan, value = self.database.sanitize_metric_value(metric.value)
        row = (run_id, metric.key, value, metric.timestamp, metric.step, is_nan)
        if row in self.metrics:
            return
        self.metrics[row] = None
        last = self.latest.get(row[:2])
        if last is None or (metric.step, metric.timestamp, value) > (last[4], last[3], last[2]):
            self.latest[row[:2]] = row
        if metric.model_id is not None:
            experiment = self.runs[run_id]["experiment_id"]
            point = (metric.model_id, metric.key, metric.timestamp, metric.step, value, experiment, run_id)
            self.rows["SqlLoggedModelMetric"].append((*point, None, metric.dataset_name, metric.dataset_digest))
            self.count += 1

    def update_run_info(self, run_id: str, run_status: int | None, end_time: int | None, run_name: str | None) -> Any:
        """State and end of a run of the block."""
        from mlflow.entities import RunStatus

        if run_id not in self.runs or run_name:
            return self.ordinary["update_run_info"](run_id, run_status, end_time, run_name)
        run = self.runs[run_id]
        run["status"] = run["status"] if run_status is None else RunStatus.to_string(run_status)
        run["end_time"] = run["end_time"] if end_time is None else end_time
        return None

    def log_inputs(self, run_id: str, datasets: list[Any] | None = None, models: list[Any] | None = None) -> None:
        """What a run of the block took."""
        from mlflow.utils import validation

        if run_id not in self.runs:
            self.ordinary["log_inputs"](run_id, datasets, models)
            return
        validation._validate_dataset_inputs(datasets or [])
        for given in self._unseen(datasets or [], lambda one: (run_id, one.dataset.name, one.dataset.digest)):
            self.datasets.append((run_id, self.runs[run_id]["experiment_id"], given))
            self.count += 2 + len(given.tags)
        for model in self._unseen(models or [], lambda one: (run_id, one.model_id)):
            self.rows["SqlInput"].append((uuid.uuid4().hex, "RUN_INPUT", run_id, "MODEL_INPUT", model.model_id, 0))
            self.count += 1

    def _unseen(self, items: Iterable[Any], key: Any) -> Iterator[Any]:
        for item in items:
            if key(item) not in self.taken:
                self.taken.add(key(item))
                yield item

    def log_outputs(self, run_id: str, models: list[Any]) -> None:
        """The models that a run of the block made."""
        if run_id not in self.runs:
            self.ordinary["log_outputs"](run_id, models)
            return
        made = [(uuid.uuid4().hex, "RUN_OUTPUT", run_id, "MODEL_OUTPUT", model.model_id, model.step) for model in models]
        self.rows["SqlInput"] += made
        self.count += len(made)

    def create_logged_model(
        self,
        experiment_id: str,
        name: str | None = None,
        source_run_id: str | None = None,
        tags: list[Any] | None = None,
        params: list[Any] | None = None,
        model_type: str | None = None,
    ) -> Any:
        """A model as rows, unless its name is left to MLflow."""
        from mlflow.entities import LoggedModel, LoggedModelStatus
        from mlflow.utils import validation

        if not name:
            return self.ordinary["create_logged_model"](experiment_id, name, source_run_id, tags, params, model_type)
        validation._validate_logged_model_name(name)
        model_id, now = f"m-{uuid.uuid4().hex}", round(1000 * time.time())
        place = _below(self._experiment(experiment_id).artifact_location, "models", model_id, "artifacts")
        status, experiment = LoggedModelStatus.PENDING, int(experiment_id)
        self.models[model_id] = {
            **{"model_id": model_id, "experiment_id": experiment, "name": name, "artifact_location": place, "created": now},
            **{"updated": now, "status": status.to_int(), "lifecycle_stage": "active", "model_type": model_type},
            **{"source_run_id": source_run_id, "status_message": None},
        }
        self.rows["SqlLoggedModelParam"] += [(model_id, experiment, param.key, param.value) for param in params or []]
        self.rows["SqlLoggedModelTag"] += [(model_id, experiment, tag.key, tag.value) for tag in tags or []]
        self.count += 1 + len(params or []) + len(tags or [])
        return LoggedModel(experiment_id, model_id, name, place, now, now, model_type, source_run_id, status, None, tags, params)

    def finalize_logged_model(self, model_id: str, status: Any) -> Any:
        """The state of a model of the block."""
        if model_id not in self.models:
            return self.ordinary["finalize_logged_model"](model_id, status)
        self.models[model_id] |= {"status": status.to_int(), "updated": round(1000 * time.time())}
        return None


def fits(database: "SqlAlchemyStore") -> bool:
    """Whether the rows of the store are those that are written here."""
    import mlflow
    from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore

    known = mlflow.__version__.startswith(VERSION) and type(database) is SqlAlchemyStore
    return known and all(set(_table(name).columns.keys()) == set(columns.split()) for name, columns in COLUMNS.items())


def _table(name: str) -> Any:
    from mlflow.store.tracking.dbmodels import models

    return getattr(models, name).__table__


def _below(place: str, *parts: str) -> str:
    from mlflow.utils.uri import append_to_uri_path

    return append_to_uri_path(place, *parts)
