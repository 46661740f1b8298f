"""Shaping seam: what is added to the rewards of a step's completions before they are compared."""
