"""Families of facts, memorised or in a context."""
