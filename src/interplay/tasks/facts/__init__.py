"""Families of facts, memorised or in a context: synthetic people (bios), hierarchies (taxonomy), contexts against memory
(conflicts)."""
