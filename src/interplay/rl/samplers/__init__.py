"""Sampler seam: which prompts a step draws. One file per idea."""
