"""The command line. `snakemake all` runs studies; `interplay` plans them, explains them and keeps what they left."""

from interplay.cli.app import COMMANDS, find_command, main

__all__ = ["COMMANDS", "find_command", "main"]
