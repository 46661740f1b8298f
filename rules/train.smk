# The one LM trainer, under its three names; and the trainers on few data.


rule pretrain:
    input:
        GRAPH.inputs,
    output:
        update("results/pretrain/{digest}/record.json"),
    log:
        "logs/pretrain/{digest}.log",
    benchmark:
        "benchmarks/pretrain/{digest}.tsv"
    threads: GRAPH.threads
    resources:
        **GRAPH.resources(),
    shell:
        "exec python -m interplay.stage run {wildcards.digest} --log {log}"


rule midtrain:
    input:
        GRAPH.inputs,
    output:
        update("results/midtrain/{digest}/record.json"),
    log:
        "logs/midtrain/{digest}.log",
    benchmark:
        "benchmarks/midtrain/{digest}.tsv"
    threads: GRAPH.threads
    resources:
        **GRAPH.resources(),
    shell:
        "exec python -m interplay.stage run {wildcards.digest} --log {log}"


rule sft:
    input:
        GRAPH.inputs,
    output:
        update("results/sft/{digest}/record.json"),
    log:
        "logs/sft/{digest}.log",
    benchmark:
        "benchmarks/sft/{digest}.tsv"
    threads: GRAPH.threads
    resources:
        **GRAPH.resources(),
    shell:
        "exec python -m interplay.stage run {wildcards.digest} --log {log}"


rule prefer:
    input:
        GRAPH.inputs,
    output:
        update("results/prefer/{digest}/record.json"),
    log:
        "logs/prefer/{digest}.log",
    benchmark:
        "benchmarks/prefer/{digest}.tsv"
    threads: GRAPH.threads
    resources:
        **GRAPH.resources(),
    shell:
        "exec python -m interplay.stage run {wildcards.digest} --log {log}"


rule unlearn:
    input:
        GRAPH.inputs,
    output:
        update("results/unlearn/{digest}/record.json"),
    log:
        "logs/unlearn/{digest}.log",
    benchmark:
        "benchmarks/unlearn/{digest}.tsv"
    threads: GRAPH.threads
    resources:
        **GRAPH.resources(),
    shell:
        "exec python -m interplay.stage run {wildcards.digest} --log {log}"


rule reward_model:
    input:
        GRAPH.inputs,
    output:
        update("results/reward_model/{digest}/record.json"),
    log:
        "logs/reward_model/{digest}.log",
    benchmark:
        "benchmarks/reward_model/{digest}.tsv"
    threads: GRAPH.threads
    resources:
        **GRAPH.resources(),
    shell:
        "exec python -m interplay.stage run {wildcards.digest} --log {log}"
