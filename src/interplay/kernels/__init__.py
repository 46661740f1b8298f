"""Compiled kernels of small decoders on CPUs."""
