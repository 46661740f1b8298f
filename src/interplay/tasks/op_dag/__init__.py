"""Arithmetic over a dependency graph (Interplay, arXiv:2512.07783): the terse surface, and the published one in sentences."""
