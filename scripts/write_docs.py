"""Writes the documents that are made from code: the campaign's JSON Schema, the tables. ``--check`` only compares."""

import json
import sys
from pathlib import Path

from volumetry import tables
from volumetry.spec import Campaign

DOCS = Path(__file__).resolve().parent.parent / "docs"


def generated() -> dict[str, str]:
    """Name of a file in docs/ -> its text."""
    schema = {"$schema": "https://json-schema.org/draft/2020-12/schema"} | Campaign.model_json_schema()
    return {"campaign.schema.json": json.dumps(schema, indent=2) + "\n", "data.md": tables.markdown()}


def main() -> int:
    stale = [name for name, text in generated().items() if _read(DOCS / name) != text]
    if "--check" in sys.argv[1:]:
        if stale:
            print(f"not up to date: {', '.join(stale)}; run scripts/write_docs.py", file=sys.stderr)
        return int(bool(stale))
    for name in stale:
        (DOCS / name).write_text(generated()[name], encoding="utf-8")
    return 0


def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8") if path.exists() else ""


if __name__ == "__main__":
    sys.exit(main())
