"""The only place where a model runs over a problem set."""
