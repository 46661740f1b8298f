# Models and data sets from outside, problem sets, tokenizers and packed corpora.


use rule stage as source with:
    output:
        update("results/source/{digest}/record.json"),
    log:
        "logs/source/{digest}.log",


use rule stage as problems with:
    output:
        update("results/problems/{digest}/record.json"),
    log:
        "logs/problems/{digest}.log",


use rule stage as dataset with:
    output:
        update("results/dataset/{digest}/record.json"),
    log:
        "logs/dataset/{digest}.log",


use rule stage as curate with:
    output:
        update("results/curate/{digest}/record.json"),
    log:
        "logs/curate/{digest}.log",


use rule stage as tokenizer with:
    output:
        update("results/tokenizer/{digest}/record.json"),
    log:
        "logs/tokenizer/{digest}.log",


use rule stage as corpus with:
    output:
        update("results/corpus/{digest}/record.json"),
    log:
        "logs/corpus/{digest}.log",
