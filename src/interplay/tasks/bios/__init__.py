"""Synthetic people over a relation graph (From Atomic to Composite, arXiv:2512.01970)."""
