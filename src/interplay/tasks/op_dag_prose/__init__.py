"""Arithmetic over a dependency graph in sentences: the published surface of Interplay (arXiv:2512.07783)."""
