"""What everything else rests on: the base model of every spec and its errors, digests, artifacts, metrics files and signals.
No torch."""
