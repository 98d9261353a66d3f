"""What a host says it uploaded, and whether it is what arrived."""

import hashlib
import io
import json
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass

from volumetry.errors import EvidenceMissing


@dataclass(frozen=True)
class Manifest:
    """What a host says it uploaded: sizes in bytes and SHA-256 sums."""

    trial: str
    attempt: int
    host: str
    archive_sha256: str
    files: Mapping[str, str]  # name -> sha256

    @classmethod
    def parse(cls, text: bytes) -> "Manifest":
        """Raises EvidenceMissing when the text is no manifest."""
        try:
            data = json.loads(text)
            sums = {name: entry["sha256"] for name, entry in data["files"].items()}
            return cls(data["trial"], int(data["attempt"]), data["host"], data["archive"]["sha256"], sums)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise EvidenceMissing(f"the manifest cannot be read: {error}") from None


def read_archive(archive: bytes, manifest: Manifest) -> dict[str, bytes]:
    """The files of a host's archive; raises EvidenceMissing unless every checksum of the manifest holds."""
    if hashlib.sha256(archive).hexdigest() != manifest.archive_sha256:
        raise EvidenceMissing(f"the archive of {manifest.host} is not the one that its manifest names")
    files = {}
    with tarfile.open(fileobj=io.BytesIO(archive), mode="r:gz") as tar:
        for member in tar:
            content = tar.extractfile(member)
            if content is not None:
                files[member.name.removeprefix("./")] = content.read()
    for name, expected in manifest.files.items():
        if hashlib.sha256(files.get(name, b"")).hexdigest() != expected:
            raise EvidenceMissing(f"{name} of {manifest.host} is not the file that its manifest names")
    return files
