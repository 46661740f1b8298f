# Asks the plan, includes the rules, names the targets. Everything about studies lies in configs/, everything about stages in src/.
from pathlib import Path

from snakemake.utils import min_version

from interplay.run import hooks
from interplay.run.graph import open_graph

min_version("9.20")


# Used only with --software-deployment-method apptainer; all jobs run in the environment that runs Snakemake.
container: "docker://python:3.11-slim"


GRAPH = open_graph(Path(workflow.basedir), config, workflow.is_main_process)


wildcard_constraints:
    digest="[0-9a-f]{12}",


localrules:
    all,


# Every rule ends in `exec`, so that a signal for the job reaches the stage's runner and no shell in between.
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
    hooks.start(GRAPH)


onsuccess:
    hooks.succeed(GRAPH)


onerror:
    hooks.fail(GRAPH)
