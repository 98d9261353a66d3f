"""Each change to the emulators stands on source that was read; an upgrade that moves it fails here."""

from __future__ import annotations

import importlib

import pytest

from local_region import seams

for _module in (
    "authorization",
    "cloudformation",
    "functions",
    "images",
    "interpreter",
    "queries",
    "schedules",
    "step_functions",
):
    importlib.import_module(f"local_region.{_module}")


@pytest.fixture(autouse=True, scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> None:
    # ministack reads where its state is when it is imported.
    with pytest.MonkeyPatch.context() as patch:
        state = str(tmp_path_factory.mktemp("state"))
        patch.setenv("STATE_DIR", state)
        patch.setenv("S3_DATA_DIR", state)
        for seam in seams.SEAMS.values():
            seam.locate()


@pytest.mark.parametrize("target", sorted(seams.SEAMS))
def test_upstream_has_not_moved_a_seam(target: str) -> None:
    seam = seams.SEAMS[target]
    owner, name = seam.locate()
    found = seams.fingerprint_of(getattr(owner, name))
    assert found == seam.fingerprint, f"read what {target} is now ({seam.because}), then write {found}"


@pytest.mark.parametrize("target", sorted(seams.SEAMS))
def test_every_seam_has_a_reason(target: str) -> None:
    assert len(seams.SEAMS[target].because.split()) > 4
