"""The command line in this process."""

import pytest

from interplay.cli import main


def interplay(capsys: pytest.CaptureFixture[str], *argv: object) -> tuple[int, str, str]:
    """(exit code, standard output, standard error) of `interplay ARGV`."""
    capsys.readouterr()
    code = main([str(word) for word in argv])
    said = capsys.readouterr()
    return code, said.out, said.err
