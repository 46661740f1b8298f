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
        **GRAPH.resources(),
    shell:
        "exec python -m interplay.stage run {wildcards.digest} --log {log}"
