# Samples of a model over a problem set; rows that a model writes; the best of a stage's checkpoints; the bands of a base.


use rule stage as evaluate with:
    output:
        update("results/evaluate/{digest}/record.json"),
    log:
        "logs/evaluate/{digest}.log",


use rule stage as generate with:
    output:
        update("results/generate/{digest}/record.json"),
    log:
        "logs/generate/{digest}.log",


use rule stage as select with:
    output:
        update("results/select/{digest}/record.json"),
    log:
        "logs/select/{digest}.log",


use rule stage as calibrate with:
    output:
        update("results/calibrate/{digest}/record.json"),
    log:
        "logs/calibrate/{digest}.log",


use rule stage as audit with:
    output:
        update("results/audit/{digest}/record.json"),
    log:
        "logs/audit/{digest}.log",
