"""What cannot be read, wholly or in part."""

import errno
import os
import shutil
from pathlib import Path

import pytest
from observing import observe

from envdoctor.facts import Unknown
from envdoctor.observe import EnvironmentUnreadable


def test_an_environment_without_its_packages_folder_is_unreadable(venv: Path, pick) -> None:
    shutil.rmtree(venv / "lib")
    with pytest.raises(EnvironmentUnreadable, match="has no folder of packages"):
        list(observe(pick(venv)).seen)


def test_a_packages_folder_without_permission_is_unreadable(forbidden: Path, pick) -> None:
    site = forbidden / "env/lib/python3.11/site-packages"
    site.mkdir(parents=True)
    (forbidden / "env/pyvenv.cfg").write_text("home = /gone\nversion = 3.11.9\n")
    site.chmod(0)
    with pytest.raises(EnvironmentUnreadable, match=f"site-packages cannot be read: {os.strerror(errno.EACCES)}"):
        list(observe(pick(forbidden / "env")).seen)


def test_one_folder_without_permission_leaves_the_listing_incomplete(forbidden: Path, make_dist, pick) -> None:
    site = forbidden / "env/lib/python3.11/site-packages"
    make_dist(site, "numpy", "2.4.6")
    (forbidden / "env/pyvenv.cfg").write_text("home = /gone\nversion = 3.11.9\n")
    (forbidden / "more").mkdir(mode=0)
    observed = observe(pick(forbidden / "env", PYTHONPATH=forbidden / "more"))
    reason = f"{forbidden / 'more'} cannot be read: {os.strerror(errno.EACCES)}"
    assert observed.incomplete == reason and reason in observed.notes
    assert observed.known.value("pkg.numpy") == "2.4.6"
    assert isinstance(observed.known.value("pkg.torch"), Unknown)


@pytest.mark.parametrize(
    "settings",
    [
        b"",
        b"\0",
        b"home = \0\nversion = 3.11.1\n",
        b"\xff\xfe = \xff",
        b"home = " + b"/x" * 40_000,
        b"version = 9" * 999,
    ],
)
def test_any_pyvenv_cfg_is_harmless(tmp_path: Path, settings: bytes, pick) -> None:
    (tmp_path / "env/lib/python3.11/site-packages").mkdir(parents=True)
    (tmp_path / "env/pyvenv.cfg").write_bytes(settings)
    layout = pick(tmp_path / "env")
    assert layout.kind == "venv"
    assert "pyvenv.cfg does not exclude them" in (observe(layout).incomplete or "")
