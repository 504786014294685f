"""A bare folder of packages (--path)."""

import errno
import os
import sys
from pathlib import Path

import pytest

from envdoctor.facts import Unknown
from envdoctor.observe import EnvironmentNotFound

VERSION = sys.version.split()[0].rstrip("+")


def test_a_bare_folder_does_not_know_its_python(bare: Path, read, make_dist) -> None:
    make_dist(bare, "numpy", "2.4.6")
    layout, observed, facts = read(path=bare)
    assert (layout.kind, layout.live, layout.executable) == ("path", True, None)
    assert isinstance(facts["python.version"], Unknown)
    assert (facts["pkg.numpy"], observed.incomplete) == ("2.4.6", None)


def test_a_bare_folder_reads_no_pth_and_no_pythonpath(bare: Path, tmp_path: Path, read) -> None:
    (tmp_path / "other").mkdir()
    (bare / "a.pth").write_text(f"{tmp_path / 'other'}\n")
    layout, _, _ = read(path=bare, environ={"PYTHONPATH": str(tmp_path / "other")})
    assert layout.site_packages == (str(bare),)


def test_a_site_packages_folder_knows_its_python(venv: Path, site: Path, tmp_path: Path, read) -> None:
    (tmp_path / "other").mkdir()
    (site / "a.pth").write_text(f"{tmp_path / 'other'}\n")
    layout, _, facts = read(path=site)
    assert layout.site_packages == (str(site), str(tmp_path / "other"))
    assert facts["python.version"] == VERSION


def test_a_path_that_is_wrong_is_said(venv: Path, tmp_path: Path, read) -> None:
    (tmp_path / "file").write_text("")
    for path, words in ((venv, "use --python"), (tmp_path / "gone", "not exist"), (tmp_path / "file", "not a folder")):
        with pytest.raises(EnvironmentNotFound, match=words):
            read(path=path)


def test_a_path_without_permission_is_said(forbidden: Path, read) -> None:
    (forbidden / "packages").mkdir(mode=0)
    with pytest.raises(EnvironmentNotFound, match=f"cannot be listed: {os.strerror(errno.EACCES)}"):
        read(path=forbidden / "packages")
