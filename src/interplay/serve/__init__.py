"""The local page of `interplay open`: what is in results/, live and read-only."""
