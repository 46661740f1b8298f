# Samples of a model over a problem set; the best of a stage's checkpoints.


rule evaluate:
    input:
        GRAPH.inputs,
    output:
        update("results/evaluate/{digest}/record.json"),
    log:
        "logs/evaluate/{digest}.log",
    benchmark:
        "benchmarks/evaluate/{digest}.tsv"
    threads: GRAPH.threads
    resources:
        mem_mb=GRAPH.memory_mb,
        runtime=GRAPH.runtime,
        gpu=GRAPH.gpus,
        gpu_model=GRAPH.gpu_model,
        slurm_partition=GRAPH.partition,
        slurm_extra=GRAPH.slurm_extra,
    shell:
        "exec python -m interplay.stage run {wildcards.digest} --log {log}"


rule select:
    input:
        GRAPH.inputs,
    output:
        update("results/select/{digest}/record.json"),
    log:
        "logs/select/{digest}.log",
    benchmark:
        "benchmarks/select/{digest}.tsv"
    threads: GRAPH.threads
    resources:
        mem_mb=GRAPH.memory_mb,
        runtime=GRAPH.runtime,
        gpu=GRAPH.gpus,
        gpu_model=GRAPH.gpu_model,
        slurm_partition=GRAPH.partition,
        slurm_extra=GRAPH.slurm_extra,
    shell:
        "exec python -m interplay.stage run {wildcards.digest} --log {log}"
