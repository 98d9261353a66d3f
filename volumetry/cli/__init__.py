"""The command line: ``volumetry plan | run | list | show | report | logs | query | stop``.

Exit codes: 0 done; 1 the campaign or the service failed; 2 the input is wrong; 3 done, but some trials failed;
130 stopped.
"""

import sys
import traceback

from botocore.exceptions import BotoCoreError, ClientError
from rich.console import Console

from volumetry.cli.commands import app
from volumetry.cli.local import home
from volumetry.errors import CampaignRefused, VolumetryError, short


def main() -> None:
    """Run the command line; every error reaches the user as a line, never as a traceback."""
    try:
        app()
    except VolumetryError as error:
        told = "refused" if isinstance(error, CampaignRefused) else "error"
        _tell(told, *(error.problems if isinstance(error, CampaignRefused) else [str(error)]))
        sys.exit(error.exit_code)
    except (BotoCoreError, ClientError) as error:
        _tell("error", f"AWS, or the local region, did not do what was asked: {short(error)}")
        sys.exit(1)
    except Exception as error:
        log = home() / "error.log"
        log.parent.mkdir(parents=True, exist_ok=True)
        log.write_text(traceback.format_exc(), encoding="utf-8")
        _tell("error", f"this is a fault of Volumetry itself, {type(error).__name__}: {error}; details in {log}")
        sys.exit(1)


def _tell(word: str, *lines: str) -> None:
    console = Console(stderr=True, highlight=False, markup=False, soft_wrap=True)
    for line in lines:
        console.print(f"{word}:", style="red", end=" ")
        console.print(line)
