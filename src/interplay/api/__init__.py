"""Implementation of `interplay.load` and of the commands `adopt` and `debug`."""
