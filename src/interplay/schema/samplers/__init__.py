"""Options of the samplers, one class each."""
