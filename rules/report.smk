# Tables, figures, claims and the page of a study.


rule report:
    input:
        GRAPH.inputs,
    output:
        update("results/report/{digest}/record.json"),
    log:
        "logs/report/{digest}.log",
    benchmark:
        "benchmarks/report/{digest}.tsv"
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
