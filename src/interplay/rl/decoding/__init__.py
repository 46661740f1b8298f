"""Decoding seam: what tokens of rollouts are drawn from. One file per idea."""
