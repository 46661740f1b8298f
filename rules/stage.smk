# The rule of all kinds: the stage of a digest, made by its runner. The rules of the kinds name their own files. Benchmarks are the
# runner's, in Snakemake's format: Snakemake measures the processes below a job, and a forked stage is not below its client.


rule stage:
    input:
        GRAPH.inputs(),
    output:
        update("results/stage/{digest}/record.json"),
    log:
        "logs/stage/{digest}.log",
    threads: GRAPH.threads()
    resources:
        **GRAPH.resources(),
    shell:
        f"exec {GRAPH.runner()} run {{wildcards.digest}} --log {{log}} --benchmarks benchmarks"


# Short stages that share a job of Slurm.
rule shared:
    input:
        GRAPH.inputs(),
    output:
        update("results/shared/{digest}/made"),
    log:
        "logs/shared/{digest}.log",
    threads: GRAPH.threads()
    resources:
        **GRAPH.resources(),
    shell:
        "exec python -m interplay.run.forkserver share {wildcards.digest} --log {log}"
