"""Loss seam: what the policy descends on. One file per idea."""
