"""Generators of the committed pages: not part of the package."""
