"""Addresses and what libraries say of them, without passwords: the one place for it.

Where an address can be read in two ways, as one whose password holds a `/` or an `@` that nobody escaped, less of it is shown."""

import re
import urllib.parse

LONGEST = 200
"""Characters of an error that are shown."""
ADDRESS = re.compile(r"(?P<scheme>[\w+.\-]*:)?//(?P<rest>\S*)")
SECRET = re.compile(r"(?i)([\w.\-]*(?:pass|pwd|secret|token|key|auth|sig|cred|odbc)[\w.\-]*=)[^\s&;'\"]+")
"""`password=...` and its like, in a query or in a library's own words; the value of `odbc_connect` holds such pairs."""
FILES = ("sqlite:", "file:")
"""Schemes without a server, whose paths may hold an `@`."""


def shown(text: str) -> str:
    """An address, or a text that may hold some, as it may be printed."""
    return SECRET.sub(r"\1***", ADDRESS.sub(_address, text))


def reason(uri: str, error: Exception) -> str:
    """What is wrong with a store, in one line."""
    said = str(error).replace(uri, shown(_spelt(uri)))
    host = _spelt(uri).rpartition("@")[2] if "@" in uri else ""
    name = re.split(r"[/?#:]", host)[0]
    if name:  # a library that splits the address elsewhere takes a part of the password for the host
        said = re.sub(rf"[^\s\"'(/]*@(?={re.escape(name)})", "", said)
    return f"{shown(_spelt(uri))}: {' '.join(shown(said).split())[:LONGEST] or type(error).__name__}"


def _spelt(uri: str) -> str:
    """Without blanks, at which an address in a text ends."""
    return re.sub(r"\s", "%20", uri)


def _address(found: re.Match[str]) -> str:
    scheme, rest = found["scheme"] or "", found["rest"]
    if scheme in FILES:
        return found[0]
    place, mark, query = rest.partition("?")
    if "@" in urllib.parse.unquote(query):  # the password may hold the `?`
        return f"{scheme}//***"
    return f"{scheme}//{place.rpartition('@')[2]}{mark}{query}"
