"""Artifact folders, atomic writes, manifests, leases, metrics files."""
