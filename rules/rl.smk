# Reinforcement learning, and teaching by it.


rule rl:
    input:
        GRAPH.inputs,
    output:
        update("results/rl/{digest}/record.json"),
    log:
        "logs/rl/{digest}.log",
    benchmark:
        "benchmarks/rl/{digest}.tsv"
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


rule teach:
    input:
        GRAPH.inputs,
    output:
        update("results/teach/{digest}/record.json"),
    log:
        "logs/teach/{digest}.log",
    benchmark:
        "benchmarks/teach/{digest}.tsv"
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
