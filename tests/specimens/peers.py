"""What ``uv pip check`` and ``pip check`` say of an environment: the real tools, run on it."""

import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from environments import Built
from uv import find_uv_bin


class Complaint(NamedTuple):
    """``kind`` is missing, conflict, python, platform, duplicate or broken; ``asker`` is who asks for ``package``."""

    kind: str
    package: str
    asker: str


def base_interpreter() -> Path | None:
    """The Python 3.11 that a virtual environment can be made of, without asking for another one than runs the tests."""
    path = Path(sys.base_prefix) / "bin" / "python3.11"
    return path if sys.version_info[:2] == (3, 11) and path.exists() else None


def told_by_uv(built: Built) -> list[Complaint]:
    python = built.target / "bin" / "python"
    done = _run([find_uv_bin(), "pip", "check", "--python", str(python), "--no-config"], built)
    told = []
    for line in done.stderr.splitlines():
        named = [_normal(name) for name in re.findall(r"`([A-Za-z0-9._-]+)[^`]*`", line)]
        if "multiple installed" in line:
            told.append(Complaint("duplicate", named[0], ""))
        elif "requires Python" in line:
            told.append(Complaint("python", named[0], ""))
        elif "not installed" in line:
            told.append(Complaint("missing", named[1], named[0]))
        elif "requires" in line and "installed" in line:
            told.append(Complaint("conflict", named[1], named[0]))
        elif "different platform" in line:
            told.append(Complaint("platform", named[0], ""))
        elif "broken" in line or "error" in line or "invalid" in line:
            told.append(Complaint("broken", named[0] if named else line[:60], ""))
    assert bool(told) is (done.returncode != 0), done.stderr
    return sorted(set(told))


def told_by_pip(built: Built) -> list[Complaint] | None:
    """None when pip is not installed."""
    pip = find_spec("pip")
    if pip is None or pip.origin is None:
        return None
    # What ``pip --python`` starts there, without the pip that starts it.
    runner = str(Path(pip.origin).with_name("__pip-runner__.py"))
    done = _run([str(built.target / "bin" / "python"), runner, "--isolated", "check"], built)
    told = []
    for line in done.stdout.splitlines():
        missing = re.match(r"(\S+) \S+ requires (\S+), which is not installed", line)
        wrong = re.match(r"(\S+) \S+ has requirement .*, but you have (\S+) ", line)
        other = re.match(r"(\S+) \S+ is not supported on this platform", line)
        if other:
            told.append(Complaint("platform", _normal(other[1]), ""))
        elif match := missing or wrong:
            told.append(Complaint("missing" if missing else "conflict", _normal(match[2]), _normal(match[1])))
    if not told and done.returncode:
        told.append(Complaint("crash", (done.stderr.strip().splitlines() or [""])[-1][:60], ""))
    return sorted(set(told))


def _run(command: list[str], built: Built) -> subprocess.CompletedProcess[str]:
    names = ("PATH", "SSL_CERT_FILE", "UV_CACHE_DIR", "TMPDIR")
    environ = {name: os.environ[name] for name in names if name in os.environ}
    environ |= {"HOME": str(built.home), "UV_CACHE_DIR": str(built.home / "uv"), **built.environ, "NO_COLOR": "1"}
    return subprocess.run(
        command, capture_output=True, text=True, env=environ, cwd=built.home / "work", timeout=120, check=False
    )


def _normal(name: str) -> str:
    return re.sub("[-_.]+", "-", name.partition("[")[0]).lower()
