# Samples of a model over a problem set.


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
    shell:
        "exec python -m interplay.stage run {wildcards.digest} --log {log}"
