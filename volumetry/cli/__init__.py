"""The command line: ``volumetry plan | run | list | show | report | logs | query | stop``.

Exit codes: 0 done; 1 the campaign or the service failed; 2 the input is wrong; 3 done, but some trials failed;
130 stopped.
"""

import sys

from rich.console import Console

from volumetry.cli.commands import app
from volumetry.errors import CampaignRefused, VolumetryError


def main() -> None:
    """Run the command line; every error reaches the user as a line, never as a traceback."""
    try:
        app()
    except VolumetryError as error:
        console = Console(stderr=True, highlight=False, markup=False, soft_wrap=True)
        for problem in error.problems if isinstance(error, CampaignRefused) else [str(error)]:
            console.print("refused:" if isinstance(error, CampaignRefused) else "error:", style="red", end=" ")
            console.print(problem)
        sys.exit(error.exit_code)
