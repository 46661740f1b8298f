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
        **GRAPH.resources(),
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
        **GRAPH.resources(),
    shell:
        "exec python -m interplay.stage run {wildcards.digest} --log {log}"
