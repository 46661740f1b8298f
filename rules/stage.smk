# The rule of all kinds: the stage of a digest, made by its runner. The rules of the kinds name their own files.


rule stage:
    input:
        GRAPH.inputs(),
    output:
        update("results/stage/{digest}/record.json"),
    log:
        "logs/stage/{digest}.log",
    benchmark:
        "benchmarks/stage/{digest}.tsv"
    threads: GRAPH.threads()
    resources:
        **GRAPH.resources(),
    shell:
        "exec python -m interplay.run.stage run {wildcards.digest} --log {log}"
