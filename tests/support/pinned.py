"""Holds what tests install while they run to the releases that were pinned, so that a new one breaks no test."""

import os
import re
from importlib.metadata import distributions
from pathlib import Path

from uv import find_uv_bin

_PINS = Path(__file__).resolve().parents[1] / "requirements"


def installing(python: str | Path, *options: str | Path) -> list[str]:
    """Return the begin of a command that installs for an interpreter, from where pip would.

    pip takes ten seconds of a processor for a torch that uv takes from its cache.
    """
    links = ["--find-links", os.environ["PIP_FIND_LINKS"]] if "PIP_FIND_LINKS" in os.environ else []
    return [find_uv_bin(), "pip", "install", "-q", "--python", str(python), *links, *map(str, options)]


def pinned(folder: Path, wanted: str = "") -> list[str]:
    """Return options for ``pip install`` and ``uv pip install``; they name a file that is written into a folder.

    It holds the pins for what is ``wanted`` (`tools/pin.py` lists it), and of all other packages the release that the
    tests run with. There are no options where ENVDOCTOR_TEST_NEWEST asks for the newest releases.
    """
    if "ENVDOCTOR_TEST_NEWEST" in os.environ:
        return []
    pins = (_PINS / f"{wanted.replace('==', '-')}.txt").read_text(encoding="utf-8") if wanted else ""
    named = {*re.findall(r"(?m)^[a-z0-9-]+", pins), "envdoctor"}
    own = {re.sub(r"[-_.]+", "-", one.name).lower(): one.version for one in distributions()}
    lines = [f"{name}=={version}\n" for name, version in own.items() if name not in named]
    path = folder / "pins.txt"
    path.write_text(pins + "".join(lines), encoding="utf-8")
    return ["-c", str(path)]
