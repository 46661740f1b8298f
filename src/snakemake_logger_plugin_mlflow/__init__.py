"""A Snakemake logger plugin that shows a workflow in MLflow. It does not depend on Interplay and serves any Snakemake workflow.

`snakemake --logger mlflow ...`, or `logger: [mlflow]` in a profile. One run stands for the execution of the workflow and has one
child run per job: its rule, wildcards and threads (params), its resources, its benchmark figures, the seconds it waited and ran
(metrics), its log (artifact) and its state. The state is that of the job:

- FAILED when a job failed or was killed, with the reason and the last words of its log; RUNNING again when Snakemake retries it,
  in the same run, and FINISHED when a retry succeeds;
- KILLED when Snakemake stopped before the job did, also after SIGKILL of Snakemake itself: what a dead process left as RUNNING
  (recognised by host, process id and start time) is closed when the next execution logs its first job.

Tracking never fails a workflow and hardly slows it: mlflow is imported when the first job starts and not before (a run with
nothing to do does not pay for it), everything happens in a thread of its own, waiting times are short, and after an
error there is one warning, silence, and another attempt minutes later. Neither the environment nor shell commands are logged;
logs of jobs are.

| setting | meaning |
| --- | --- |
| `--logger-mlflow-tracking-uri` | where to log; else `MLFLOW_TRACKING_URI`, else `sqlite:///mlflow.db` |
| `--logger-mlflow-experiment` | name of the experiment; else the name of the working directory |
| `--logger-mlflow-adapter` | a Python module with `sink(settings)`, where runs are named and grouped otherwise: see `sink.Sink` |
"""

from dataclasses import dataclass, field
from logging import LogRecord
from logging.handlers import QueueHandler
from typing import Any, Optional

from snakemake_interface_logger_plugins.base import LogHandlerBase
from snakemake_interface_logger_plugins.settings import LogHandlerSettingsBase

from snakemake_logger_plugin_mlflow.events import Reader
from snakemake_logger_plugin_mlflow.worker import Worker


@dataclass
class LogHandlerSettings(LogHandlerSettingsBase):
    """Options of the command line or of a profile. (`Optional`: Snakemake makes argparse types of these annotations.)"""

    tracking_uri: Optional[str] = field(  # noqa: UP045
        default=None,
        metadata={"help": "Where to log. Default: MLFLOW_TRACKING_URI, else sqlite:///mlflow.db in the working directory."},
    )
    experiment: Optional[str] = field(  # noqa: UP045
        default=None, metadata={"help": "Name of the MLflow experiment. Default: the name of the working directory."}
    )
    adapter: Optional[str] = field(  # noqa: UP045
        default=None, metadata={"help": "Python module whose sink(settings) takes the jobs instead of one run per job."}
    )


class LogHandler(LogHandlerBase):
    """Hands Snakemake's job events to a worker thread. Called in the thread of Snakemake's log queue, not in its scheduler's."""

    writes_to_stream = writes_to_file = needs_rulegraph = False
    has_filter = has_formatter = True
    """Nothing is formatted, and Snakemake's own filter would drop the events of jobs under `--quiet`."""

    def __post_init__(self) -> None:
        self.reader = Reader()
        self.worker: Worker | None = None
        self.header: dict[str, Any] = {}

    def emit(self, record: LogRecord) -> None:
        """Take an event; the first of a job starts the worker."""
        if self.common_settings.dryrun:
            self._leave_queue()
            return
        event = self.reader.read(record)
        if event is None:
            return
        if event.name == "workflow":
            self.header = {**event.facts, "started": event.time}
            return
        if self.worker is None:
            if event.name != "job":
                return
            self.worker = Worker(self.settings, self.header)
            self.worker.start()
        self.worker.take(event)

    def _leave_queue(self) -> None:
        """Nothing is shown of a dry run, so its further events need not be queued, unless another plugin reads them: two of each
        job, a twelfth of the time."""
        if len(getattr(self.common_settings, "log_handler_settings", ())) == 1:
            from snakemake.logging import logger  # what a mirror without Snakemake does not need

            for handler in [one for one in logger.handlers if isinstance(one, QueueHandler)]:
                logger.removeHandler(handler)

    def close(self) -> None:
        """Called once, when Snakemake ends: write what is still to be written."""
        if self.worker is not None:
            self.worker.finish()
            self.worker = None
        super().close()
