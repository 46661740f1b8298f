"""Optimisers, schedules and resume states."""
