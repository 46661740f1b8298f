# Models and data sets from outside, problem sets, tokenizers and packed corpora.


rule source:
    input:
        GRAPH.inputs,
    output:
        update("results/source/{digest}/record.json"),
    log:
        "logs/source/{digest}.log",
    benchmark:
        "benchmarks/source/{digest}.tsv"
    threads: GRAPH.threads
    resources:
        **GRAPH.resources(),
    shell:
        "exec python -m interplay.stage run {wildcards.digest} --log {log}"


rule problems:
    input:
        GRAPH.inputs,
    output:
        update("results/problems/{digest}/record.json"),
    log:
        "logs/problems/{digest}.log",
    benchmark:
        "benchmarks/problems/{digest}.tsv"
    threads: GRAPH.threads
    resources:
        **GRAPH.resources(),
    shell:
        "exec python -m interplay.stage run {wildcards.digest} --log {log}"


rule dataset:
    input:
        GRAPH.inputs,
    output:
        update("results/dataset/{digest}/record.json"),
    log:
        "logs/dataset/{digest}.log",
    benchmark:
        "benchmarks/dataset/{digest}.tsv"
    threads: GRAPH.threads
    resources:
        **GRAPH.resources(),
    shell:
        "exec python -m interplay.stage run {wildcards.digest} --log {log}"


rule curate:
    input:
        GRAPH.inputs,
    output:
        update("results/curate/{digest}/record.json"),
    log:
        "logs/curate/{digest}.log",
    benchmark:
        "benchmarks/curate/{digest}.tsv"
    threads: GRAPH.threads
    resources:
        **GRAPH.resources(),
    shell:
        "exec python -m interplay.stage run {wildcards.digest} --log {log}"


rule tokenizer:
    input:
        GRAPH.inputs,
    output:
        update("results/tokenizer/{digest}/record.json"),
    log:
        "logs/tokenizer/{digest}.log",
    benchmark:
        "benchmarks/tokenizer/{digest}.tsv"
    threads: GRAPH.threads
    resources:
        **GRAPH.resources(),
    shell:
        "exec python -m interplay.stage run {wildcards.digest} --log {log}"


rule corpus:
    input:
        GRAPH.inputs,
    output:
        update("results/corpus/{digest}/record.json"),
    log:
        "logs/corpus/{digest}.log",
    benchmark:
        "benchmarks/corpus/{digest}.tsv"
    threads: GRAPH.threads
    resources:
        **GRAPH.resources(),
    shell:
        "exec python -m interplay.stage run {wildcards.digest} --log {log}"
