# Tables, figures, claims and the page of a study.


use rule stage as report with:
    output:
        update("results/report/{digest}/record.json"),
    log:
        "logs/report/{digest}.log",


# What a report shows, for `snakemake --report FILE --config finished=true`: nothing runs, the files are there.
for number, (path, record, study, part) in enumerate(GRAPH.drawn()):

    rule:
        name:
            f"shown_{number}"
        input:
            record,
        output:
            report(path, category=study, subcategory=part),
