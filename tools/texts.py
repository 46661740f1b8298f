"""A JSONL of real text for studies: sources and documents of the Python packages installed here, each row with the licence that
its package declares: `python -m tools.texts data/external/packages.jsonl --megabytes 24`.

Packages come in the order of their names, and their files in the order of their paths, so that the same environment gives the
same file. Packages without a licence, files that are not text in UTF-8, and files whose words repeat an earlier one are left out
and counted."""

import argparse
import json
from collections import Counter
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

ENDINGS = (".py", ".pyi", ".rst", ".md", ".txt")
LEAST, MOST = 200, 200_000
"""Characters of a file."""


def licence_of(package: metadata.Distribution) -> str:
    """What a package declares: an SPDX expression, else a short text, else its classifiers; empty where it declares none."""
    said = package.metadata.json
    written = str(said.get("license_expression") or said.get("license") or "")
    if written and len(written) < 60:
        return " ".join(written.split())
    classifiers = [line.rpartition(" :: ")[2] for line in said.get("classifier", ()) if line.startswith("License :: ")]
    return " / ".join(sorted(set(classifiers) - {"OSI Approved"}))


def rows(counts: Counter[str]) -> Iterator[dict[str, str]]:
    """The files as rows; `counts` counts what is left out, by reason."""
    seen: set[str] = set()
    for package in sorted(metadata.distributions(), key=lambda one: (one.metadata["Name"] or "").lower()):
        if not (licence := licence_of(package)):
            counts["package without a licence"] += 1
            continue
        for file in sorted(package.files or (), key=str):
            if file.suffix not in ENDINGS or not (path := Path(str(package.locate_file(file)))).is_file():
                continue
            try:
                text = path.read_bytes().decode()
            except UnicodeDecodeError:
                counts["file not in UTF-8"] += 1
                continue
            words = " ".join(text.split())
            if not LEAST <= len(text) <= MOST or not {"\x1e", "\ufffd"}.isdisjoint(text):
                counts["file too short, too long or badly decoded"] += 1
            elif words in seen:
                counts["file that repeats an earlier one"] += 1
            else:
                seen.add(words)
                name = f"{package.metadata['Name']}=={package.version}"
                yield {"text": text, "licence": licence, "package": name, "file": str(file)}


def main() -> None:
    """Write the file and say what it holds."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("output", type=Path)
    parser.add_argument("--megabytes", type=float, default=24, help="size of the texts, in UTF-8")
    asked = parser.parse_args()
    counts, size, by_licence = Counter[str](), 0, Counter[str]()
    asked.output.parent.mkdir(parents=True, exist_ok=True)
    with open(asked.output, "w", encoding="utf-8") as handle:
        for row in rows(counts):
            handle.write(json.dumps(row, ensure_ascii=False) + "\n")
            size += len(row["text"].encode())
            by_licence[row["licence"]] += 1
            if size >= asked.megabytes * 1e6:
                break
    print(
        f"{asked.output}: {size / 1e6:.1f} MB in {by_licence.total()} files; licences {dict(by_licence)}; left out {dict(counts)}"
    )


if __name__ == "__main__":
    main()
