"""Implementation of `interplay.load` and of the commands `adopt`, `calibrate` and `debug`."""
