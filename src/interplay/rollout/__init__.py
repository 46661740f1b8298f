"""Sampling completions: engines behind one interface, and noise that is keyed by what a token is."""
