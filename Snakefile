# Opens the plan, includes the rules, names the targets. Studies are defined in configs/, stages in src/.
from pathlib import Path

from snakemake.utils import min_version

from interplay.run import graph

min_version("9.20")


# Used only with --software-deployment-method apptainer; all jobs run in the environment that runs Snakemake.
container: "docker://python:3.11-slim"


GRAPH = graph.open_graph(Path(workflow.basedir), config, workflow.is_main_process)


wildcard_constraints:
    digest="[0-9a-f]{12}",


localrules:
    all,


# Every rule's command is an `exec`, so that signals to the job reach the stage's runner and not a shell in between.
include: "rules/stage.smk"
include: "rules/data.smk"
include: "rules/train.smk"
include: "rules/rl.smk"
include: "rules/evaluate.smk"
include: "rules/report.smk"


rule all:
    default_target: True
    input:
        GRAPH.targets(),


onstart:
    graph.on_start(GRAPH, workflow.cores if workflow.local_exec else None)
    # Snakemake's limit on launches a second has the scheduler look at all waiting jobs again, a second after each look and once more
    # for each job that has ended: a quarter of a core with 200 jobs done. One machine needs no such limit; a cluster keeps its own.
    if workflow.local_exec:
        workflow.scheduler.job_rate_limiter = None


onsuccess:
    graph.on_success(GRAPH)


onerror:
    graph.on_error(GRAPH)
