"""Get the subsets of published data sets that studies read, and check them against the studies' checksums.

    python data/external/fetch.py                  # from the repositories that publish them
    python data/external/fetch.py --from FOLDER    # from there, where the machine reaches no network: it names the files it wants

Of GSM8K the lines of `lines.json`, as they are; of HotpotQA both files one after the other. Where a checksum differs, nothing is
written.
"""

import argparse
import hashlib
import json
import sys
import urllib.error
import urllib.request
from pathlib import Path

HERE = Path(__file__).parent
RAW = "https://raw.githubusercontent.com"
GSM8K = f"{RAW}/openai/grade-school-math/3101c7d5072418e28b9008a6636bde82a006892c/grade_school_math/data"
SOURCES = {
    "train.jsonl": f"{GSM8K}/train.jsonl",
    "test.jsonl": f"{GSM8K}/test.jsonl",
    "hotpotqa_train.json": f"{RAW}/OSU-NLP-Group/HippoRAG/b144c46df14cabe5f5822d8caded4bec5f709461/data/hotpotqa_train.json",
    "hotpotqa200.json": f"{RAW}/screemix/Wikontic/8e36d5e58233a1c7c5900f5e02c2d8f254fbbb68/datasets/hotpotqa200.json",
}
CHECKSUMS = {
    "gsm8k_train.jsonl": "bd2b1cdfd1f9e8e1d1dc577792b339b470d1c03bbaeb36970aaf0fc1a63ac4a4",
    "gsm8k_test.jsonl": "0d016607d5392f9392f6a67fe14c7a94366b5ef40de4540731dfea8c293682a4",
    "hotpotqa.json": "9c3fceaacae8ac1601ae342df2c308a3c88354bf20a036f2db899a9602ed7307",
}


def main() -> int:
    """Exit code 2 where a file cannot be had, or is not what it was."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--from", dest="folder", type=Path, metavar="FOLDER", help="a folder with the four files")
    parser.add_argument("--to", type=Path, default=HERE, metavar="FOLDER", help="where they go (default: next to this script)")
    args = parser.parse_args()
    try:
        made = subsets({name: read(name, args.folder) for name in SOURCES})
    except (OSError, ValueError, IndexError) as error:
        print(f"fetch: {error}", file=sys.stderr)
        return 2
    for name, data in made.items():
        if (found := hashlib.sha256(data).hexdigest()) != CHECKSUMS[name]:
            print(f"fetch: {name}: sha256 {found}, not {CHECKSUMS[name]}: its source has changed", file=sys.stderr)
            return 2
    for name, data in made.items():
        (args.to / name).write_bytes(data)
        print(args.to / name)
    return 0


def read(name: str, folder: Path | None) -> bytes:
    """A published file, from its source or from a folder. Raises OSError that names it."""
    if folder:
        return (folder / name).read_bytes()
    try:
        with urllib.request.urlopen(SOURCES[name], timeout=60) as answer:
            return bytes(answer.read())
    except urllib.error.URLError as error:
        raise OSError(f"{SOURCES[name]}: {error.reason}; get the files of this script by hand and say --from FOLDER") from None


def subsets(files: dict[str, bytes]) -> dict[str, bytes]:
    """The files that studies read, of the published ones."""
    lines = json.loads((HERE / "lines.json").read_text())
    chosen = {}
    for split in ("train", "test"):
        every = files[f"{split}.jsonl"].splitlines(keepends=True)
        chosen[f"gsm8k_{split}.jsonl"] = b"".join(every[number] for number in lines[f"gsm8k_{split}"])
    items = json.loads(files["hotpotqa_train.json"]) + json.loads(files["hotpotqa200.json"])
    return {**chosen, "hotpotqa.json": f"{json.dumps(items)}\n".encode()}


if __name__ == "__main__":
    sys.exit(main())
