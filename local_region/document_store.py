"""SSM documents of the account, with their versions."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from local_region import identity, ssm_documents
from local_region.records import Record
from local_region.ssm_documents import SsmError

Request = Mapping[str, Any]


@dataclass
class Document:
    """All versions of a document; the first is number 1."""

    name: str
    contents: list[str]
    default: int = 1
    format: str = "JSON"
    tags: list[dict[str, str]] = field(default_factory=list)
    created: float = field(default_factory=time.time)

    def version(self, wanted: str | None) -> int:
        if wanted in (None, "", "$DEFAULT"):
            return self.default
        if wanted == "$LATEST":
            return len(self.contents)
        number = int(wanted) if wanted and wanted.isdigit() else 0
        if not 1 <= number <= len(self.contents):
            raise SsmError("InvalidDocumentVersion", f"Document {self.name} has no version {wanted}")
        return number

    def parsed(self, version: int) -> dict[str, Any]:
        return ssm_documents.parse(self.name, self.contents[version - 1])

    def description(self, version: int) -> Record:
        content = self.parsed(version)
        return {
            "Name": self.name,
            "Hash": ssm_documents.digest(self.contents[version - 1]),
            "HashType": "Sha256",
            "Owner": identity.ACCOUNT,
            "CreatedDate": self.created,
            "Status": "Active",
            "DocumentVersion": str(version),
            "Description": content.get("description", ""),
            "Parameters": [
                {
                    "Name": name,
                    "Type": one["type"],
                    "Description": one.get("description", ""),
                    **({"DefaultValue": _text(one["default"])} if "default" in one else {}),
                }
                for name, one in (content.get("parameters") or {}).items()
            ],
            "PlatformTypes": ["Linux"],
            "DocumentType": "Command",
            "SchemaVersion": "2.2",
            "LatestVersion": str(len(self.contents)),
            "DefaultVersion": str(self.default),
            "DocumentFormat": self.format,
            "Tags": self.tags,
        }


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


class Documents:
    def __init__(self) -> None:
        self._documents: dict[str, Document] = {}

    def load(self, path: Path) -> None:
        if path.exists():
            self._documents = {one["name"]: Document(**one) for one in json.loads(path.read_text())}

    def save(self, path: Path) -> None:
        path.write_text(json.dumps([vars(one) for one in self._documents.values()]))

    def find(self, name: str) -> Document:
        name = name.rpartition("document/")[2]
        try:
            return self._documents[name]
        except KeyError:
            raise SsmError("InvalidDocument", f"Document with name {name} does not exist.") from None

    def content(self, name: str, version: str | None) -> tuple[dict[str, Any], str]:
        """A document's parsed content, and the number of the version."""
        if name == "AWS-RunShellScript":
            return ssm_documents.RUN_SHELL_SCRIPT, "1"
        document = self.find(name)
        number = document.version(version)
        return document.parsed(number), str(number)

    def create(self, request: Request) -> Record:
        name = request["Name"]
        if request.get("DocumentType", "Command") != "Command":
            raise SsmError("InvalidDocumentType", "The local region knows documents of type Command alone.")
        if name in self._documents:
            raise SsmError("DocumentAlreadyExists", f"Document with same name {name} already exists")
        ssm_documents.parse(name, request["Content"])
        self._documents[name] = Document(
            name, [request["Content"]], format=request.get("DocumentFormat", "JSON"), tags=request.get("Tags", [])
        )
        return {"DocumentDescription": self._documents[name].description(1)}

    def update(self, request: Request) -> Record:
        document = self.find(request["Name"])
        content = request["Content"]
        ssm_documents.parse(document.name, content)
        if content in document.contents:
            raise SsmError("DuplicateDocumentContent", "The content of the document has not changed")
        document.contents.append(content)
        return {"DocumentDescription": document.description(len(document.contents))}

    def set_default(self, request: Request) -> Record:
        document = self.find(request["Name"])
        document.default = document.version(request["DocumentVersion"])
        return {"Description": {"Name": document.name, "DefaultVersion": str(document.default)}}

    def describe(self, request: Request) -> Record:
        document = self.find(request["Name"])
        return {"Document": document.description(document.version(request.get("DocumentVersion")))}

    def get(self, request: Request) -> Record:
        document = self.find(request["Name"])
        version = document.version(request.get("DocumentVersion"))
        return {
            "Name": document.name,
            "DocumentVersion": str(version),
            "Status": "Active",
            "Content": document.contents[version - 1],
            "DocumentType": "Command",
            "DocumentFormat": document.format,
            "CreatedDate": document.created,
        }

    def list(self, _request: Request) -> Record:
        keys = ("Name", "Owner", "DocumentVersion", "DocumentType", "SchemaVersion", "DocumentFormat", "Tags")
        described = [one.description(one.default) for one in self._documents.values()]
        return {"DocumentIdentifiers": [{key: one[key] for key in keys} for one in described]}

    def delete(self, request: Request) -> Record:
        del self._documents[self.find(request["Name"]).name]
        return {}
