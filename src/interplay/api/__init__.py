"""The public Python interface behind `interplay.load`, `adopt`, `calibrate` and `debug`."""
