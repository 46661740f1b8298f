"""One stage on one machine: Snakemake's graph, the runner, signals, Slurm, GPUs, worker processes."""
