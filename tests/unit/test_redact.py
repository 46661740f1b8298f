"""What is told of a store holds no password, however its address is written."""

import pytest

from snakemake_logger_plugin_mlflow import store


@pytest.mark.parametrize(
    ("uri", "shown"),
    [
        ("https://me:hush@host/x", "https://host/x"),
        ("postgresql://u:p@hush@h/db", "postgresql://h/db"),
        ("postgresql+psycopg2://u:hush@h:5432/db?connect_timeout=9", "postgresql+psycopg2://h:5432/db?connect_timeout=9"),
        ("http://user:a/hush@h", "http://h"),
        ("http://user:a#hush@h/x", "http://h/x"),
        ("http://user:a?hush@h/x", "http://***"),
        ("postgresql://h/db?user=u&password=hush", "postgresql://h/db?user=u&password=***"),
        ("postgresql://h/db?password=a@hush", "postgresql://***"),
        ("mssql://h/db?odbc_connect=DRIVER%3Dx%3BPWD%3Dhush", "mssql://h/db?odbc_connect=***"),
        ("https://h/x?sv=1&sig=hush", "https://h/x?sv=1&sig=***"),
        ("hush@h", "hush@h"),
        ("sqlite:////home/me@work/mlflow.db", "sqlite:////home/me@work/mlflow.db"),
        ("http://127.0.0.1:5000", "http://127.0.0.1:5000"),
    ],
)
def test_an_address_is_shown_without_its_password(uri: str, shown: str) -> None:
    assert store.redacted(uri) == shown


def test_a_password_is_taken_out_before_a_long_error_is_cut() -> None:
    uri = "postgresql://u:hushhush@host/db"
    said = store.redacted_reason("sqlite:///x.db", OSError("x" * (store.LONGEST - 20) + f" {uri} is gone"))
    assert "hush" not in said
    assert said.endswith("x postgresql://host/d")


@pytest.mark.parametrize(
    ("uri", "said"),
    [
        ("postgresql://u:p@hush@h/db", 'could not translate host name "hush@h" to address'),
        ("postgresql://u:a hush@h/db", "no route to postgresql://u:a hush@h/db"),
        ("postgresql://h/db", "connection to user=u password=hush dbname=db failed"),
        ("postgresql://h/db", "cannot reach 'https://u:hush@other/x'"),
    ],
)
def test_a_library_that_tells_a_password_is_not_repeated(uri: str, said: str) -> None:
    assert "hush" not in store.redacted_reason(uri, OSError(said))


def test_an_address_that_cannot_be_read_is_refused_without_its_parts() -> None:
    uri = "http://user:hush/x@h"
    with pytest.raises(OSError, match="write %40 for @") as caught:
        store.connect(uri)
    assert "hush" not in store.redacted_reason(uri, caught.value)
