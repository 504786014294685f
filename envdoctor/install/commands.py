"""Commands that install a set of exact versions, written for the installer of the judged environment.

The user's own index or mirror is kept: nothing here replaces it. Wheels for one CUDA version come from an extra index
that the table ``packages`` names.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

__all__ = ["Pin", "install_commands"]

_NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*\Z")
_SPECIFIER = re.compile(r"(~=|==|!=|<=|>=|<|>)[0-9a-z.*]+(,(~=|==|!=|<=|>=|<|>)[0-9a-z.*]+)*\Z")

#: A normalised name, and a specifier such as ``==2.4.1``.
Pin = tuple[str, str]


def install_commands(
    pins: Sequence[Pin],
    *,
    installer: str,
    interpreter: str | None,
    cuda_tag: str | None,
    packages: Iterable[Mapping[str, Any]],
    folder: str | None = None,
    target: bool = False,
) -> tuple[str, ...]:
    """Shell commands for the pins; empty when a name or specifier is not plain enough to be put into a shell.

    ``packages`` are the rows of the table of that name. ``cuda_tag`` is the local tag of the CUDA build to keep
    (``cu118``, ``cpu``), None when the default build is right. ``interpreter`` is the one of an environment that is not
    active, ``folder`` that environment's folder; with ``target`` the folder is a bare one (``pip install --target``).
    """
    if not all(_NAME.match(name) and _SPECIFIER.match(specifier) for name, specifier in pins):
        return ()
    table = {entry["name"]: entry for entry in packages}
    tagged = [name for name, specifier in pins if cuda_tag and _takes_tag(table, name) and specifier.startswith("==")]
    missing = [name for name, _ in pins if table.get(name, {}).get("conda_forge") is False]
    if installer == "conda" and not missing:
        return (_conda(pins, folder if interpreter else None, table),)
    where = ["--target", folder, "--upgrade"] if target and folder else []
    if installer == "uv":
        return (_uv(pins, interpreter, where, cuda_tag if tagged else None),)
    return (_pip(pins, interpreter, where, cuda_tag, tagged=tagged, table=table),)


def _joined(words: Sequence[str]) -> str:
    import shlex

    return shlex.join(words)


def _takes_tag(table: Mapping[str, Any], name: str) -> bool:
    return "wheel_index" in table.get(name, {})


def _conda(pins: Sequence[Pin], folder: str | None, table: Mapping[str, Any]) -> str:
    names = [table.get(name, {}).get("conda", name) + specifier for name, specifier in pins]
    return _joined(["conda", "install", *(["-p", folder] if folder else []), "-c", "conda-forge", *names])


def _uv(pins: Sequence[Pin], interpreter: str | None, where: Sequence[str], tag: str | None) -> str:
    words = ["uv", "pip", "install", *where]
    if interpreter:
        words += ["--python", interpreter]
    words += [name + specifier for name, specifier in pins]
    if tag:
        words.append(f"--torch-backend={tag}")
    return _joined(words)


def _pip(
    pins: Sequence[Pin],
    interpreter: str | None,
    where: Sequence[str],
    tag: str | None,
    *,
    tagged: Sequence[str],
    table: Mapping[str, Any],
) -> str:
    words = [interpreter, "-m", "pip", "install", *where] if interpreter else ["pip", "install", *where]
    words += [f"{name}{specifier}+{tag}" if name in tagged else name + specifier for name, specifier in pins]
    if tagged:
        # The local tag makes the choice exact, so an extra index is enough and the user's own stays in force.
        words += ["--extra-index-url", table[tagged[0]]["wheel_index"].replace("{tag}", str(tag))]
    return _joined(words)
