"""What is sampled, by three seams: how many completions (allocation), from which text (prompting), what then (continuation)."""
