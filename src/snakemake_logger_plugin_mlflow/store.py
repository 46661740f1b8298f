"""The way to an MLflow store: found quickly or given up quickly, initialised once, and quiet."""

import contextlib
import fcntl
import logging
import os
import re
import socket
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from snakemake_logger_plugin_mlflow import bulk

if TYPE_CHECKING:
    from mlflow import MlflowClient

DEFAULT = "sqlite:///mlflow.db"
PORTS = {"http": 80, "https": 443, "postgresql": 5432, "mysql": 3306, "mssql": 1433}
PATIENCE = 5
"""Seconds until a server counts as not answering."""


def uri_of(setting: str | None = None) -> str:
    """The tracking URI: what is set, else `MLFLOW_TRACKING_URI`, else a SQLite file in the working directory."""
    return setting or os.environ.get("MLFLOW_TRACKING_URI") or DEFAULT


def connect(uri: str) -> "MlflowClient":
    """A client of a store that answers and has its tables. Raises OSError when none does, at once or after `PATIENCE` seconds.

    Reaches the store before it imports mlflow, which takes seconds."""
    _reach(uri)
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")  # no requests to anyone but the store
    os.environ.setdefault("MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR", "false")
    import mlflow
    from mlflow import environment_variables as variables

    # Defaults for this process alone: through os.environ they would reach the jobs.
    variables.MLFLOW_HTTP_REQUEST_MAX_RETRIES.default = 1
    variables.MLFLOW_HTTP_REQUEST_TIMEOUT.default = PATIENCE
    variables.MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT.default = True
    for name in ("mlflow", "alembic"):
        logging.getLogger(name).setLevel(logging.ERROR)
    with _alone(uri):
        client = mlflow.MlflowClient(tracking_uri=uri)
        client.search_experiments(max_results=1)
    return client


def experiment(client: "MlflowClient", uri: str, name: str) -> str:
    """Id of the experiment of that name, made when it is not there. A SQLite store keeps its artifacts next to it."""
    found = client.get_experiment_by_name(name)
    if found is not None:
        return found.experiment_id
    file = sqlite_file(uri)
    place = str(file.absolute().parent / "mlruns") if file else None
    # The kind decides which pages MLflow shows: without it, those for traces of chat applications.
    return client.create_experiment(name, artifact_location=place, tags={"mlflow.experimentKind": "custom_model_development"})


def search(client: "MlflowClient", experiment_id: str, wanted: str) -> list[Any]:
    """All runs of the experiment that the filter fits, oldest first, over as many pages as there are."""
    runs: list[Any] = []
    token = None
    while True:
        page = client.search_runs([experiment_id], wanted, max_results=500, order_by=["start_time ASC"], page_token=token)
        runs += page
        token = page.token
        if not token:
            return runs


@contextlib.contextmanager
def transaction(client: "MlflowClient") -> Iterator[None]:
    """What the client writes in the block is committed at its end, or not at all after an exception, but for what `give_way` has
    committed. A database that it writes itself otherwise commits, and waits for the disk, several times a call (`bulk`); a server
    commits for itself: there, nothing changes, nor with a version of MLflow that has no such store. Not to be nested."""
    from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore

    database = _database(client)
    if not (isinstance(database, SqlAlchemyStore) and hasattr(database, "ManagedSessionMaker")):
        yield
        return
    with bulk.Transaction(database) as opened:
        _OPEN[id(database)] = opened
        try:
            yield
        finally:
            del _OPEN[id(database)]


def give_way(client: "MlflowClient") -> None:
    """In a transaction, between two things that may be committed separately: commit what has waited for long, so that other
    processes may write."""
    if opened := _OPEN.get(id(_database(client))):
        opened.give_way()


_OPEN: dict[int, bulk.Transaction] = {}
"""By store, the transaction that its client is in."""


def _database(client: "MlflowClient") -> Any:
    return getattr(getattr(client, "_tracking_client", None), "store", None)


def sqlite_file(uri: str) -> Path | None:
    """The file of a SQLite URI; None for other stores."""
    return Path(urllib.parse.unquote(uri.removeprefix("sqlite:///"))) if uri.startswith("sqlite:///") else None


def metric_key(text: str) -> str:
    """A name that MLflow takes: `strict_pass@1` -> `strict_pass_at_1`; other characters it refuses become `_`."""
    return re.sub(r"[^\w\-./ ]", "_", text.replace("@", "_at_"))[:250]


def _reach(uri: str) -> None:
    file = sqlite_file(uri)
    if file is not None:
        if not os.access(file if file.exists() else file.absolute().parent, os.W_OK):
            raise OSError(f"{file} cannot be written")
        return
    try:
        parts = urllib.parse.urlsplit(uri)
        port = parts.port
    except ValueError:  # it would say what it takes for the port, which may be of a password
        raise OSError("no address of a store; in a name or a password write %40 for @, %2F for /, %3A for :") from None
    scheme = parts.scheme.split("+")[0]
    if not parts.hostname or not (port or scheme in PORTS):
        return
    if scheme in urllib.request.getproxies() and not urllib.request.proxy_bypass(parts.hostname):
        return
    socket.create_connection((parts.hostname, port or PORTS[scheme]), timeout=PATIENCE).close()


@contextlib.contextmanager
def _alone(uri: str) -> Iterator[None]:
    """Several processes that make the tables of one SQLite file at once crash in its migration: one after the other."""
    file = sqlite_file(uri)
    if file is None:
        yield
        return
    with open(file.with_name(f".{file.name}.lock"), "w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


# Addresses and what libraries say of them, without passwords.


LONGEST = 200
"""Characters of an error that are shown."""
ADDRESS = re.compile(r"(?P<scheme>[\w+.\-]*:)?//(?P<rest>\S*)")
SECRET = re.compile(r"(?i)([\w.\-]*(?:pass|pwd|secret|token|key|auth|sig|cred|odbc)[\w.\-]*=)[^\s&;'\"]+")
"""`password=...` and similar, in a query or in a library's own words; the value of `odbc_connect` holds such pairs."""
FILES = ("sqlite:", "file:")
"""Schemes without a server, whose paths may hold an `@`."""


def redacted(text: str) -> str:
    """An address, or a text that may hold some, as it may be printed."""
    return SECRET.sub(r"\1***", ADDRESS.sub(_address, text))


def redacted_reason(uri: str, error: Exception) -> str:
    """What is wrong with a store, in one line."""
    said = str(error).replace(uri, redacted(_spelt(uri)))
    host = _spelt(uri).rpartition("@")[2] if "@" in uri else ""
    name = re.split(r"[/?#:]", host)[0]
    if name:  # a library that splits the address elsewhere takes a part of the password for the host
        said = re.sub(rf"[^\s\"'(/]*@(?={re.escape(name)})", "", said)
    return f"{redacted(_spelt(uri))}: {' '.join(redacted(said).split())[:LONGEST] or type(error).__name__}"


def _spelt(uri: str) -> str:
    """Without blanks, at which an address in a text ends."""
    return re.sub(r"\s", "%20", uri)


def _address(found: re.Match[str]) -> str:
    scheme, rest = found["scheme"] or "", found["rest"]
    if scheme in FILES:
        return found[0]
    place, mark, query = rest.partition("?")
    if "@" in urllib.parse.unquote(query):  # the password may hold the `?`
        return f"{scheme}//***"
    return f"{scheme}//{place.rpartition('@')[2]}{mark}{query}"
