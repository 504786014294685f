"""Environments built in a temporary folder: real virtual environments, and trees of files that look like others."""

import os
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any
from venv import create

import pytest
from observing import Observed, choose, observe, values

from envdoctor.facts import Value
from envdoctor.observe import Layout, Running
from envdoctor.system import Files

MakeDist = Callable[..., Path]


@pytest.fixture
def make_dist() -> MakeDist:
    """Write a metadata directory: ``make_dist(folder, "numpy", "2.4.6", INSTALLER="pip\\n")``. ``lines`` join its
    header, ``header`` replaces it."""

    def make(
        folder: Path,
        name: str,
        version: str,
        *,
        kind: str = "dist-info",
        lines: Iterable[str] = (),
        header: str | None = None,
        **files: str,
    ):
        path = folder / f"{name}-{version}.{kind}"
        path.mkdir(parents=True)
        text = "\n".join(["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}", *lines, "", "About it.\n"])
        files["METADATA" if kind == "dist-info" else "PKG-INFO"] = text if header is None else header
        for file, content in files.items():
            (path / file.replace("__", ".")).write_text(content, encoding="utf-8")
        return path

    return make


@pytest.fixture(scope="session")
def pristine_venv(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A real virtual environment without pip, of the Python that runs the tests. Not to be modified."""
    folder = tmp_path_factory.mktemp("venv") / "env"
    create(folder, symlinks=os.name != "nt")
    return folder


@pytest.fixture
def venv(tmp_path: Path) -> Path:
    """A real virtual environment without pip, for one test."""
    folder = tmp_path / "env"
    create(folder, symlinks=os.name != "nt")
    return folder


@pytest.fixture
def site(venv: Path) -> Path:
    """The site-packages folder of ``venv``."""
    return venv / "lib" / f"python{sys.version_info[0]}.{sys.version_info[1]}" / "site-packages"


@pytest.fixture
def read(tmp_path: Path) -> Callable[..., tuple[Layout, Observed, dict[str, Value]]]:
    """Choose an environment and read it: layout, observation, and the facts' values by key."""

    def run(**named: Any):
        layout = choose(**{"cwd": tmp_path, **named})
        observed = observe(layout)
        return layout, observed, values(observed.facts)

    return run


@pytest.fixture
def pick(tmp_path: Path) -> Callable[..., Layout]:
    """Choose an environment from ``tmp_path``, with the variables given and no others."""

    def run(
        python: object = None, *, running: Running | None = None, cwd: Path = tmp_path, **environ: object
    ) -> Layout:
        variables = {name: str(value) for name, value in environ.items()}
        return choose(python, environ=variables, cwd=cwd, running=running)

    return run


@pytest.fixture
def bare(tmp_path: Path) -> Path:
    """An empty folder for packages, as ``pip install --target`` makes it."""
    folder = tmp_path / "packages"
    folder.mkdir()
    return folder


@pytest.fixture
def files() -> Files:
    """Files as they are on this machine."""
    return Files()


@pytest.fixture
def forbidden(tmp_path: Path) -> Iterator[Path]:
    """A folder where permissions hold: when the tests run as root, they go on as nobody.

    It is no ``tmp_path``, whose parents nobody may enter; ``tmp_path`` is asked for so that it is made before.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        root = os.geteuid() == 0
        if root:
            os.chown(folder, 65534, 65534)
            os.seteuid(65534)
        try:
            yield folder
        finally:
            if root:
                os.seteuid(0)
            for path, folders, _ in os.walk(folder):
                for inner in folders:
                    (Path(path) / inner).chmod(0o755)
