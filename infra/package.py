"""The code of the functions: our own packages as one asset, their dependencies as a layer.

The layer holds what ``functions/requirements.txt`` names, for the functions' processor, from the project's lock file;
``make layer`` builds it, and it is needed on AWS alone: the local region runs functions on the interpreter that runs
the project.
"""

import shutil
from pathlib import Path

from volumetry.report.page import write_bundle

ROOT = Path(__file__).parent.parent
BUILD = ROOT / "build"
LAYER = BUILD / "layer"
PACKAGES = ("functions", "volumetry")


def functions_folder() -> Path:
    """A folder with the functions' code, and the script that the report page embeds."""
    folder = BUILD / "functions"
    shutil.rmtree(folder, ignore_errors=True)
    for package in PACKAGES:
        shutil.copytree(ROOT / package, folder / package, ignore=shutil.ignore_patterns("__pycache__", "*.pyc"))
    shutil.copytree(ROOT / "queries", folder / "queries")
    bundle = BUILD / "charts.js"
    if not bundle.exists():
        write_bundle(bundle)
    shutil.copy(bundle, folder)
    return folder


def layer_folder() -> Path:
    """The layer's folder; when nobody has built it, one that says so."""
    if not LAYER.exists():
        LAYER.mkdir(parents=True)
        (LAYER / "README").write_text("Empty: `make layer` puts the functions' dependencies here.\n")
    return LAYER
