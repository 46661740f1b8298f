"""Tasks and environments of other packages, each an extra."""
