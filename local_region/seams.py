"""Named places where the emulators are changed, and the record of what stood there.

The emulators are other people's code, reached into at private names. Each change is declared with
`mend` or `setting`, names its target and its reason, and carries a fingerprint of the source that it was
written against; a test compares the fingerprints, so that an upgrade which moves a seam is seen.
"""

from __future__ import annotations

import functools
import hashlib
import importlib
import inspect
import sys
from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import Any

Replacement = Callable[..., Any]


@dataclass(frozen=True)
class Seam:
    """`target` is "package.module:name" or "package.module:Class.name"."""

    target: str
    because: str
    fingerprint: str
    replace: Callable[[Any], Any]
    everywhere: bool = True

    @property
    def package(self) -> str:
        return self.target.partition(".")[0]

    def locate(self) -> tuple[Any, str]:
        """The object that holds the name, and the name."""
        module_name, _, path = self.target.partition(":")
        *owners, name = path.split(".")
        owner: Any = importlib.import_module(module_name)
        for part in owners:
            owner = getattr(owner, part)
        return owner, name


SEAMS: dict[str, Seam] = {}
ORIGINALS: dict[str, Any] = {}


def mend(target: str, *, because: str, fingerprint: str) -> Callable[[Replacement], Replacement]:
    """Put the decorated function in the target's place; it gets the original as its first argument."""

    def register(function: Replacement) -> Replacement:
        def replace(original: Any) -> Any:
            @functools.wraps(original)
            def mended(*args: Any, **kwargs: Any) -> Any:
                return function(original, *args, **kwargs)

            return mended

        _declare(Seam(target, because, fingerprint, replace))
        return function

    return register


def setting(target: str, value: Any, *, because: str, fingerprint: str, everywhere: bool = False) -> None:
    """Put a value in the place of the target, and if `everywhere`, of what other modules imported of it."""
    _declare(Seam(target, because, fingerprint, lambda _original: value, everywhere))


def _declare(seam: Seam) -> None:
    if seam.target in SEAMS:
        raise ValueError(f"{seam.target} is mended twice")
    SEAMS[seam.target] = seam


def install(package: str) -> None:
    """Apply every declared seam of an emulator. Idempotent."""
    for seam in SEAMS.values():
        if seam.package != package or seam.target in ORIGINALS:
            continue
        owner, name = seam.locate()
        original = getattr(owner, name)
        ORIGINALS[seam.target] = original
        _put(owner, name, seam.replace(original))
        if seam.everywhere and isinstance(owner, ModuleType):
            _put_in_copies(owner, name, original, getattr(owner, name))


def _put(owner: Any, name: str, replacement: Any) -> None:
    static = isinstance(inspect.getattr_static(owner, name), staticmethod)
    setattr(owner, name, staticmethod(replacement) if static else replacement)


def _put_in_copies(owner: ModuleType, name: str, original: Any, replacement: Any) -> None:
    """In other modules of the package, which "from module import name" gave a name of their own."""
    package = owner.__name__.partition(".")[0]
    for module_name, module in list(sys.modules.items()):
        if module_name.partition(".")[0] == package and vars(module).get(name) is original:
            setattr(module, name, replacement)


def fingerprint_of(original: Any) -> str:
    """Twelve hexadecimal digits of the source of a function, or of the text of a value."""
    text = inspect.getsource(original) if callable(original) else repr(original)
    return hashlib.sha256(text.encode()).hexdigest()[:12]
