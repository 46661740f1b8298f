# Samples of a model over a problem set; the best of a stage's checkpoints.


use rule stage as evaluate with:
    output:
        update("results/evaluate/{digest}/record.json"),
    log:
        "logs/evaluate/{digest}.log",


use rule stage as select with:
    output:
        update("results/select/{digest}/record.json"),
    log:
        "logs/select/{digest}.log",
