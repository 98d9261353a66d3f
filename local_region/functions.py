"""Lambda: ministack runs each function in warm workers of our own interpreter, as its role."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from local_region.seams import mend

Result = dict[str, Any]

# What ministack calls an error of any kind, and Lambda's names for what is not the handler's own.
_ANY_ERROR = "Runtime.HandlerError"
_RUNTIME_ERRORS = {
    "Worker process died": "Runtime.ExitError",
    "Worker returned no response": "Runtime.ExitError",
    "Worker init failed": "Runtime.ImportModuleError",
}
_invocation = threading.local()


@mend(
    "ministack.core.lambda_runtime:Worker.invoke",
    because="the trace of an exception, which names its type, was logged and lost",
    fingerprint="96751a754710",
)
def _invoke(original: Callable[..., Result], *args: Any, **kwargs: Any) -> Result:
    result = original(*args, **kwargs)
    _invocation.trace = result.get("trace", "")
    return result


@mend(
    "ministack.core.lambda_runtime:Worker._drain_stderr_bounded",
    because="an invocation that logs nothing waited 50 ms for a line",
    fingerprint="3fd7cc742872",
)
def _drain(original: Callable[..., str], self: Any) -> str:
    return original(self, first_line_wait=0.01)


@mend(
    "ministack.services.lambda_svc:_execute_function_warm",
    because="state machines catch the errors of functions by the exception's own name",
    fingerprint="62b9218bef5b",
)
def _execute(original: Callable[..., Result], *args: Any) -> Result:
    _invocation.trace = ""
    result = original(*args)
    body = result.get("body")
    if result.get("error") and isinstance(body, dict):
        message = str(body.get("errorMessage", ""))
        named = next((name for start, name in _RUNTIME_ERRORS.items() if message.startswith(start)), "")
        if named:
            body["errorType"] = named
        elif body.get("errorType") == _ANY_ERROR:
            body["errorType"] = _exception_name(_invocation.trace) or _ANY_ERROR
            body["stackTrace"] = _invocation.trace.splitlines()[1:-1]
    return result


def _exception_name(trace: str) -> str:
    """The class of the exception that a traceback ends with, without its module."""
    last = trace.rpartition("Traceback (most recent call last):\n")[2]
    line = next((line for line in last.splitlines() if line and not line.startswith(" ")), "")
    return line.partition(":")[0].rpartition(".")[2]
