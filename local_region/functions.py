"""Lambda: ministack runs each function in warm workers of our own interpreter, as its role."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from local_region import identity
from local_region.seams import mend


@mend(
    "ministack.services.lambda_svc:_normalize_layer_attachments",
    because="layers of other accounts cannot be fetched; the interpreter's own packages stand in for them",
    fingerprint="57c988ff3ed0",
)
def _own_layers(original: Callable[..., Any], layers: list[Any] | None) -> Any:
    arns = [(one if isinstance(one, str) else one.get("Arn", ""), one) for one in layers or []]
    return original([one for arn, one in arns if f":{identity.ACCOUNT}:" in arn])
