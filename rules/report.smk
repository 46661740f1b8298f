# Tables, figures, claims and the page of a study.


use rule stage as report with:
    output:
        update("results/report/{digest}/record.json"),
    log:
        "logs/report/{digest}.log",
