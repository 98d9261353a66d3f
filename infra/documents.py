"""SSM documents: the YAML of ``ssm-documents/`` with the scripts it includes put in place."""

from pathlib import Path
from typing import Any

import yaml

FOLDER = Path(__file__).parent.parent / "ssm-documents"
MAX_DOCUMENT_BYTES = 64 * 1024


def names() -> list[str]:
    """Names of all documents, sorted."""
    return sorted(path.stem for path in FOLDER.glob("*.yaml"))


def content(name: str) -> dict[str, Any]:
    """A document as SSM takes it: every ``include`` of a step is the text of those scripts, one after the other."""
    document: dict[str, Any] = yaml.safe_load((FOLDER / f"{name}.yaml").read_text(encoding="utf-8"))
    for step in document["mainSteps"]:
        scripts = step["inputs"].pop("include")
        step["inputs"]["runCommand"] = script(scripts).splitlines()
    return document


def script(scripts: list[str]) -> str:
    """One script made of several files; a Python program among them is put into the host's state folder."""
    return "\n".join(_part(name) for name in scripts) + "\n"


def _part(name: str) -> str:
    text = (FOLDER / "scripts" / name).read_text(encoding="utf-8").rstrip()
    return f"cat >\"$state/{name}\" <<'END_OF_{name}'\n{text}\nEND_OF_{name}" if name.endswith(".py") else text
