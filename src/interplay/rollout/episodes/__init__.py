"""Episode seam: how the policy acts on prompts, turn by turn. One file per idea."""
