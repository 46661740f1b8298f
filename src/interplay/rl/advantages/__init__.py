"""Advantage seam: one value per token, so that methods which credit spans or turns fit the same place. One file per idea."""
