"""From a study's YAML to Snakemake's graph. Planning is pure and imports no torch."""
