"""Steps of a `curate` stage, a union by `name`."""
