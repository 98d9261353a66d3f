"""Every error that leaves a part of Volumetry, by a stable name that state machines and people can match on."""

import difflib
from collections.abc import Iterable


class VolumetryError(Exception):
    """An error with a message for a person; ``name`` is what a state machine's ``ErrorEquals`` matches."""

    name = "Volumetry.Error"
    retryable = False
    exit_code = 1


class CampaignRefused(VolumetryError):
    """The campaign cannot run as written; ``problems`` holds one line each."""

    name = "Volumetry.CampaignRefused"
    exit_code = 2

    def __init__(self, problems: Iterable[str]) -> None:
        self.problems = tuple(problems)
        super().__init__("; ".join(self.problems))


class BadRequest(VolumetryError):
    """A command line argument, an execution or a trial that does not exist, or SQL that cannot run."""

    name = "Volumetry.BadRequest"
    exit_code = 2


class LaunchFailed(VolumetryError):
    """A topology could not be created; its stack has been deleted again."""

    name = "Volumetry.LaunchFailed"


class HostLost(VolumetryError):
    """A host stopped running while it was needed."""

    name = "Volumetry.HostLost"


class CommandFailed(VolumetryError):
    """A script on a host ended with an error."""

    name = "Volumetry.CommandFailed"


class CommandTimedOut(VolumetryError):
    """A script was still running at its deadline: whether it took effect is not known."""

    name = "Volumetry.CommandTimedOut"


class EvidenceMissing(VolumetryError):
    """A trial's manifest or archive is absent, or its checksum does not hold."""

    name = "Volumetry.EvidenceMissing"


class RegionUnavailable(VolumetryError):
    """The region does not answer, or Volumetry is not deployed in it."""

    name = "Volumetry.RegionUnavailable"


def short(error: Exception) -> str:
    """What a service or the network said, in one line."""
    response = getattr(error, "response", {})
    return " ".join((response.get("Error", {}).get("Message") or str(error)).split())


def nearest(value: object, allowed: Iterable[str]) -> str:
    """A clause such as ``; did you mean 'mirror'?``, or nothing when no allowed word is close."""
    matches = difflib.get_close_matches(str(value), list(allowed), n=1, cutoff=0.6)
    return f"; did you mean {matches[0]!r}?" if matches else ""


def not_allowed(field: str, value: object, allowed: Iterable[str]) -> str:
    """One line: the field, its value, what is allowed, and the nearest right spelling."""
    words = sorted(allowed)
    return f"{field}: {value!r} is not allowed; allowed: {', '.join(words)}{nearest(value, words)}"
