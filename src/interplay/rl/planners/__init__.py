"""Planner seam: how many completions each prompt gets, from which text they are sampled, and to which they are credited."""
