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
        **GRAPH.resources(),
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
        **GRAPH.resources(),
    shell:
        "exec python -m interplay.stage run {wildcards.digest} --log {log}"
