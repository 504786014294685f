"""What every test may rely on: the command line as a person starts it, and the shipped matrix."""

import gc
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from compiling import compile_matrix
from forking import Forking
from observing import shipped
from sharing import once

from envdoctor.matrix import Matrix
from envdoctor.matrix import matrix as matrix_module

ROOT = Path(__file__).resolve().parents[1]
# Tests run beside each other, one a core: threads of torch that wait for a core take four times as long.
os.environ["OMP_NUM_THREADS"] = "1"
# Of what tests install they read files and import little: that is compiled then. pip compiled the tests' own packages.
os.environ["PIP_COMPILE"] = "0"


def pytest_collection(session: pytest.Session) -> None:
    """Collecting makes objects that stay: the collector of garbage looks at none of them, then or later."""
    gc.disable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What waits for torch comes first: at the end there are only short ones, and no worker waits for another."""
    items.sort(key=lambda item: item.path.parent.name not in ("probe", "peak"))


def pytest_collection_finish(session: pytest.Session) -> None:
    """From here on it works, but rarely: tests read and parse much, and most of what they make is in no cycle."""
    gc.freeze()
    gc.set_threshold(100_000, 20, 100)
    gc.enable()


class Run(NamedTuple):
    """A finished ``envdoctor`` process."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """Standard output as JSON."""
        return json.loads(self.out)

    @property
    def found(self) -> dict[str, Any]:
        """The findings of a report in JSON, by rule."""
        return {finding["id"]: finding for finding in self.json["findings"]}


@pytest.fixture(scope="session", autouse=True)
def signals() -> None:
    """Let children heed hangup and interrupt, though nohup and a shell's background ignore them, which is inherited.

    A handler that does nothing ignores them as well, and no program that is started inherits a handler.
    """
    for name in ("SIGHUP", "SIGINT"):
        number = getattr(signal, name, None)
        if number is not None and signal.getsignal(number) == signal.SIG_IGN:
            signal.signal(number, lambda *_: None)


@pytest.fixture(scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache for all tests: the imports of the tests' own environment are followed once."""
    return once(tmp_path_factory, "cache", lambda folder: folder)


@pytest.fixture(scope="session", autouse=True)
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The shipped matrix as a wheel carries it; ``load_matrix`` reads it, ten times as fast as the TOML files."""

    def make(folder: Path) -> Path:
        compile_matrix(ROOT / "matrices", folder)
        return folder

    matrix_module._COMPILED = once(tmp_path_factory, "compiled", make)
    return matrix_module._COMPILED


@pytest.fixture(scope="session")
def script(compiled: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """``envdoctor`` for an interpreter of its own, with the compiled matrix as where it is installed."""
    path = tmp_path_factory.mktemp("bin") / "envdoctor"
    path.write_text(
        "import pathlib, sys\nfrom envdoctor.matrix import matrix\nfrom envdoctor.cli.main import main\n"
        f"matrix._COMPILED = pathlib.Path({str(compiled)!r})\nsys.exit(main())\n"
    )
    return path


@pytest.fixture(scope="session")
def forking(compiled: Path) -> Iterator[Forking]:
    """What starts ``envdoctor`` for :func:`run`."""
    forking = Forking(compiled)
    yield forking
    forking.end()


@pytest.fixture
def run(tmp_path: Path, cache: Path, forking: Forking) -> Callable[..., Run]:
    """Run ``python -m envdoctor`` in an empty folder, with a clean environment unless told otherwise.

    ``fresh`` asks for an interpreter of its own, where its start matters; variables of Python have it as well.
    """

    def start(
        *arguments: str | Path,
        cwd: Path | None = None,
        env: dict[str, str] | None = None,
        timeout: float = 120,
        fresh: bool = not hasattr(os, "fork"),
    ) -> Run:
        given, words = env or {}, [str(one) for one in arguments]
        environ = {key: value for key, value in os.environ.items() if not key.startswith(("ENVDOCTOR_", "LC_", "LANG"))}
        for name in ("VIRTUAL_ENV", "CONDA_PREFIX", "PYTHONPATH", "COLUMNS", "NO_COLOR", "FORCE_COLOR"):
            environ.pop(name, None)
        environ.update({"PYTHONIOENCODING": "utf-8", "XDG_CACHE_HOME": str(cache), **given})
        folder = cwd or tmp_path
        if fresh or any(name.startswith("PYTHON") for name in given):
            done = subprocess.run(
                [sys.executable, "-m", "envdoctor", *words],
                cwd=folder,
                env=environ,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=timeout,
                check=False,
            )
            result = (done.returncode, done.stdout, done.stderr)
        else:
            result = forking.run(words, folder, environ, timeout)
        out, err = (data.decode(environ["PYTHONIOENCODING"]).replace("\r\n", "\n") for data in result[1:])
        return Run(result[0], out, err)

    return start


@pytest.fixture(scope="session")
def matrix() -> Matrix:
    """The matrix of this checkout."""
    return shipped()


@pytest.fixture
def facts_file(tmp_path: Path) -> Callable[..., str]:
    """Write a minimal facts file and return its path."""

    def write(facts: dict[str, Any], **more: Any) -> str:
        path = tmp_path / "facts.json"
        path.write_text(json.dumps({"schema": "envdoctor.facts/1", "facts": facts, **more}))
        return str(path)

    return write


@pytest.fixture(scope="session")
def torch_python() -> str:
    """An interpreter with torch: that of ENVDOCTOR_TEST_TORCH, or the tests' own; without torch there is a skip."""
    python = os.environ.get("ENVDOCTOR_TEST_TORCH") or sys.executable
    code = "import importlib.util, sys; sys.exit(importlib.util.find_spec('torch') is None)"
    if subprocess.run([python, "-c", code], check=False).returncode:
        pytest.skip(f"{python} has no torch; ENVDOCTOR_TEST_TORCH may name an interpreter that has")
    return python
