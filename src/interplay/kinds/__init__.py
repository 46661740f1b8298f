"""One row per kind of stage: spec, function, cost, logged metrics, source files."""
