"""Reward seam: what a completion is paid. One file per idea."""
