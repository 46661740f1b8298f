"""What is on disk: state and progress of stages, time estimates, causes of change, catalog, garbage collection, DVC
payloads."""
