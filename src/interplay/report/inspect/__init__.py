"""Terminal inspection of stages and cells: explain, show, compare, lineage, rollouts."""
