"""JSONata as Step Functions evaluates it: the variables of a workflow, and the functions that AWS adds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jsonata import Jsonata, Utils

# Step Functions gives an expression one second; a busy machine that evaluates in Python may need more.
TIMEOUT_MS = 5000
# Integers beyond this are not exact in the double-precision numbers of JSONata.
_EXACT = 2**53


class EvaluationError(ValueError):
    """The expression is wrong, or yields nothing that JSON can hold; the message is AWS's cause."""


def evaluate(expression: str, variables: Mapping[str, Any]) -> Any:
    """The JSON value of an expression. `variables` are named without the dollar sign."""
    value = _evaluated(expression, variables)
    # The engine answers None for null and for nothing alike.
    if value is None and not _evaluated(f"$exists(({expression}))", variables):
        raise EvaluationError(f"The JSONata expression '{expression}' returned nothing (undefined).")
    return _json(value, expression)


def _evaluated(expression: str, variables: Mapping[str, Any]) -> Any:
    from ministack.services.stepfunctions import (  # noqa: PLC0415 (reads its environment at import)
        _register_sfn_jsonata_functions,
    )

    bindings = {name: Utils.NULL_VALUE if value is None else value for name, value in variables.items()}
    try:
        compiled = Jsonata.jsonata(expression, timeout=TIMEOUT_MS)
        _register_sfn_jsonata_functions(compiled)
        return compiled.evaluate(None, bindings)
    except RecursionError:
        raise EvaluationError(f"The JSONata expression '{expression}' nests too deeply.") from None
    except Exception as error:
        code = getattr(error, "error", None)
        raise EvaluationError(
            f"The JSONata expression '{expression}' specified for the field failed: "
            f"{f'{code}: ' if isinstance(code, str) else ''}{error}"
        ) from error


def _json(value: Any, expression: str) -> Any:
    if isinstance(value, dict):
        return {key: _json(item, expression) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_json(item, expression) for item in value]
    if isinstance(value, float) and value.is_integer() and abs(value) < _EXACT:
        return int(value)
    if value is Utils.NULL_VALUE:
        return None
    if value is None or isinstance(value, str | bool | int | float):
        return value
    raise EvaluationError(f"The JSONata expression '{expression}' returned an unsupported result type.")
