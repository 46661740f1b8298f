"""What the steps of a `curate` stage do, one file per idea: `(spec, rows, inputs) -> Made`."""
