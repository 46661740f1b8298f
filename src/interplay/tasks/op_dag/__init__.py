"""Arithmetic over a dependency graph, terse surface (Interplay, arXiv:2512.07783)."""
