"""A small environment whose packages would betray that somebody imported them, and a recorder of what a run does."""

import json
import os
import subprocess
import sys
import venv
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pytest
from dists import install

#: Runs the command line under an audit hook and prints, as the last line of stderr, everything it saw.
RECORDER = """
import json, os, sys
seen = {"open": [], "import": [], "other": []}
quiet = False
def hook(event, args):
    if quiet:
        return
    if event == "open":
        seen["open"].append([str(args[0]), str(args[1]), args[2] if isinstance(args[2], int) else 0])
    elif event == "import":
        seen["import"].append(args[0])
    elif event.startswith(
        ("socket.", "subprocess.", "os.", "shutil.", "ctypes.dlopen", "tempfile.", "urllib.", "webbrowser.")
    ):
        if event not in ("os.listdir", "os.scandir", "os.walk", "os.fwalk"):
            seen["other"].append([event, [str(arg)[:200] for arg in args]])
sys.addaudithook(hook)
before = set(sys.modules)
from envdoctor.cli.main import main
from pathlib import Path
from envdoctor.matrix import matrix
matrix._COMPILED = Path(sys.argv.pop(1))
from envdoctor.system import cache
cache._TICK = 0  # the environment was made a moment ago, and is kept all the same
code = main(sys.argv[1:])
quiet = True
seen["modules"] = sorted(set(sys.modules) - before)
seen["code"] = code
print(json.dumps(seen), file=sys.stderr)
"""


class Watched(NamedTuple):
    """What one run did."""

    code: int
    out: str
    opened: list[tuple[str, str, int]]
    imported: list[str]
    modules: list[str]
    other: list[tuple[str, list[str]]]

    def written(self) -> list[str]:
        """Files opened for anything but reading. A number is a descriptor, whose file was seen when it was opened."""
        return [
            path
            for path, mode, flags in self.opened
            if not path.isdigit()
            and (any(letter in mode for letter in "wax+") or flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT))
        ]


@pytest.fixture
def watch(tmp_path: Path, compiled: Path) -> Callable[..., Watched]:
    """Run a command line under the recorder, in an empty folder."""
    return partial(watched, tmp_path, compiled)


def watched(home: Path, compiled: Path, *arguments: str) -> Watched:
    """What a command line does that is run in the folder ``home``."""
    environ = {"PATH": os.environ["PATH"], "HOME": str(home), "XDG_CACHE_HOME": str(home / "cache")}
    done = subprocess.run(
        [sys.executable, "-c", RECORDER, str(compiled), *arguments],
        cwd=home,
        env=environ,
        capture_output=True,
        text=True,
        check=True,
    )
    seen = json.loads(done.stderr.splitlines()[-1])
    return Watched(seen["code"], done.stdout, seen["open"], seen["import"], seen["modules"], seen["other"])


class Look(NamedTuple):
    """One run that looked at the environment of ``home``, and the times of all files before and behind it."""

    home: Path
    environment: Path
    seen: Watched
    before: dict[Path, int]
    after: dict[Path, int]


@pytest.fixture(scope="session", params=["check", "facts"])
def look(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, compiled: Path) -> Look:
    """One run of a command, of which several tests say what it did."""
    home = tmp_path_factory.mktemp("look")
    environment = marked_environment(home)
    before = times(home)
    about = ("--no-cache", "--no-config", "--python", interpreter(environment), "--model", "THUDM/glm-4-9b-chat-hf")
    seen = watched(home, compiled, request.param, *about)
    return Look(home, environment, seen, before, times(home))


def times(home: Path) -> dict[Path, int]:
    """When each file and folder was changed."""
    return {path: path.stat().st_mtime_ns for path in home.rglob("*")}


@pytest.fixture
def environment(tmp_path: Path) -> Path:
    """A virtual environment with torch, transformers and flash-attn that leave a mark when they are imported."""
    return marked_environment(tmp_path)


def marked_environment(tmp_path: Path) -> Path:
    prefix = tmp_path / "target"
    venv.create(prefix, with_pip=False, symlinks=os.name != "nt")
    (site,) = prefix.glob("lib/python3*/site-packages") if os.name != "nt" else [prefix / "Lib" / "site-packages"]
    mark = f"open({str(tmp_path / 'imported')!r}, 'w')\n"
    built = "__version__ = '2.5.0+cu118'\ncuda = '11.8'\nhip = None\n"
    files = {"torch/__init__.py": mark, "torch/version.py": mark + built}
    install(site, "torch", "2.5.0", files=files)
    for name, version in (("transformers", "4.48.3"), ("flash_attn", "2.6.3")):
        install(site, name, version, files={f"{name}/__init__.py": mark})
    (site / "evil.pth").write_text(f"import os; {mark}")
    return prefix


@pytest.fixture
def python_of() -> Callable[[Path], str]:
    """The interpreter of a virtual environment."""
    return interpreter


def interpreter(prefix: Path) -> str:
    return str(prefix / ("Scripts/python.exe" if os.name == "nt" else "bin/python"))
