"""The results bucket: objects by key, created or replaced, and URLs that let a host create one object."""

from functools import cache
from typing import TYPE_CHECKING, Any

import boto3
import orjson
from botocore.config import Config
from botocore.exceptions import ClientError

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

# S3 answers 412 to a conditional write that came second, and 409 to one that raced the first.
_TAKEN = ("PreconditionFailed", "ConditionalRequestConflict")


@cache
def _client() -> "S3Client":
    return boto3.client("s3", config=Config(signature_version="s3v4", s3={"addressing_style": "virtual"}))


class Store:
    """One bucket. Reads of a key that does not exist give None; every other failure raises ClientError."""

    def __init__(self, bucket: str) -> None:
        self.bucket = bucket

    def get(self, key: str) -> bytes | None:
        try:
            return _client().get_object(Bucket=self.bucket, Key=key)["Body"].read()
        except ClientError as error:
            if error.response["Error"]["Code"] in ("NoSuchKey", "404"):
                return None
            raise

    def get_json(self, key: str) -> Any:
        content = self.get(key)
        return None if content is None else orjson.loads(content)

    def put(self, key: str, content: bytes, content_type: str = "application/json") -> None:
        _client().put_object(Bucket=self.bucket, Key=key, Body=content, ContentType=content_type)

    def put_json(self, key: str, value: Any) -> None:
        self.put(key, orjson.dumps(value))

    def create_json(self, key: str, value: Any) -> bool:
        """Create the object; False when it exists already."""
        try:
            _client().put_object(
                Bucket=self.bucket,
                Key=key,
                Body=orjson.dumps(value),
                ContentType="application/json",
                IfNoneMatch="*",
            )
        except ClientError as error:
            if error.response["Error"]["Code"] in _TAKEN:
                return False
            raise
        return True

    def keys(self, prefix: str) -> list[str]:
        pages = _client().get_paginator("list_objects_v2").paginate(Bucket=self.bucket, Prefix=prefix)
        return [entry["Key"] for page in pages for entry in page.get("Contents", [])]

    def url_to_read(self, key: str, seconds: int) -> str:
        """A URL that reads this object for so many seconds."""
        return _client().generate_presigned_url(
            "get_object", Params={"Bucket": self.bucket, "Key": key}, ExpiresIn=seconds
        )

    def url_to_create(self, key: str, seconds: int) -> str:
        """A URL that creates this object, once: ``If-None-Match: *`` is part of what is signed."""
        return _client().generate_presigned_url(
            "put_object", Params={"Bucket": self.bucket, "Key": key, "IfNoneMatch": "*"}, ExpiresIn=seconds
        )
