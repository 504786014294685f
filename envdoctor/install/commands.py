"""Commands that install exact versions or uninstall packages, written for the installer of the judged environment.

The user's own index or mirror is kept: nothing here replaces it. Wheels for one CUDA version come from an extra index
that the table ``packages`` names. Every command names the interpreter or the folder that it changes: the ``pip`` that
happens to be first on PATH may belong to another environment.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from envdoctor.facts.factset import FactSet

_NAME = r"[a-z0-9]+(-[a-z0-9]+)*\Z"
_CLAUSE = r"(~=|==|!=|<=|>=|<|>)[0-9a-z.*]+"
_SPECIFIER = rf"({_CLAUSE}(,{_CLAUSE})*)?\Z"

#: A normalised name, and a specifier such as ``==2.4.1``; an empty one takes any version.
Pin = tuple[str, str]


class Place(NamedTuple):
    """The environment that a command changes: its installer (``pip``, ``uv``, ``conda``), interpreter and folder.

    Without an ``interpreter`` the facts came from elsewhere, and ``python`` stands for that of whoever runs the command
    there. With ``target`` the folder is a bare one (``pip install --target``).
    """

    installer: str = "pip"
    interpreter: str | None = None
    folder: str | None = None
    target: bool = False

    @property
    def python(self) -> str:
        """What to type for the interpreter."""
        return self.interpreter or "python"

    @property
    def is_plain(self) -> bool:
        """Whether its paths can be shown as they are: what the terminal would not print is printed otherwise."""
        return f"{self.interpreter}{self.folder}".isprintable()


def place_of(facts: FactSet) -> Place:
    """The place of the judged environment; what a facts file says about files of another machine is not used."""
    python, path = (
        facts.text(key) if facts.get(key).source == "environment" else None
        for key in ("python.executable", "environment.path")
    )
    return Place(facts.text("environment.installer") or "pip", python, path, facts.value("environment.kind") == "path")


def install_commands(
    pins: Sequence[Pin], place: Place, cuda_tag: str | None, packages: Iterable[Mapping[str, Any]]
) -> tuple[str, ...]:
    """Shell commands for the pins; empty when a name, specifier or path is not plain enough to be put into a shell.

    ``packages`` are the rows of the table of that name. ``cuda_tag`` is the local tag of the CUDA build to keep
    (``cu118``, ``cpu``), None when the default build is right.
    """
    plain = all(re.match(_NAME, name) and re.match(_SPECIFIER, specifier) for name, specifier in pins)
    if not pins or not plain or not place.is_plain:
        return ()
    table = {entry["name"]: entry for entry in packages}
    if place.installer == "conda" and not _missing(table, [name for name, _ in pins]):
        names = [table.get(name, {}).get("conda", name) + specifier for name, specifier in pins]
        return (_joined([*_conda("install", place), "-c", "conda-forge", *names]),)
    built = {name for name, row in table.items() if cuda_tag and "wheel_index" in row}
    tagged = [name for name, specifier in pins if name in built and specifier.startswith("==")]
    words = _words("install", place)
    if place.installer == "uv":
        backend = [f"--torch-backend={cuda_tag}"] if tagged else []
        return (_joined([*words, *(name + specifier for name, specifier in pins), *backend]),)
    words += [f"{name}{specifier}+{cuda_tag}" if name in tagged else name + specifier for name, specifier in pins]
    if tagged:
        # The local tag makes the choice exact, so an extra index is enough and the user's own stays in force.
        words += ["--extra-index-url", table[tagged[0]]["wheel_index"].replace("{tag}", str(cuda_tag))]
    return (_joined(words),)


def uninstall_commands(names: Sequence[str], place: Place, packages: Iterable[Mapping[str, Any]]) -> tuple[str, ...]:
    """Shell commands that remove packages; none for a bare folder, from which pip cannot uninstall."""
    plain = place.is_plain and all(re.match(_NAME, name) for name in names)
    if not names or not plain or (place.target and place.installer != "uv"):
        return ()
    table = {entry["name"]: entry for entry in packages}
    if place.installer == "conda" and not _missing(table, names):
        return (_joined([*_conda("remove", place), *(table.get(name, {}).get("conda", name) for name in names)]),)
    yes = [] if place.installer == "uv" else ["-y"]
    return (_joined([*_words("uninstall", place), *yes, *names]),)


def for_place(command: str, place: Place) -> str:
    """A rule's own command; one of pip's is written for the installer and interpreter of the environment."""
    pip, _, rest = command.partition(" ")
    if pip != "pip" or not place.is_plain:
        return command
    verb, _, rest = rest.partition(" ")
    return f"{_joined(_words(verb, place))} {rest}"


def _joined(words: Sequence[str]) -> str:
    import shlex  # only a run with findings pays

    return shlex.join(words)


def _words(verb: str, place: Place) -> list[str]:
    """``/srv/env/bin/python -m pip install``, or the same for uv."""
    bare = place.folder if place.target else None
    if place.installer == "uv":
        where = ["--target", bare] if bare else ["--python", place.python]
        return ["uv", "pip", verb, *where, *(["--upgrade"] if bare and verb == "install" else [])]
    return [place.python, "-m", "pip", verb, *(["--target", bare, "--upgrade"] if bare and verb == "install" else [])]


def _conda(verb: str, place: Place) -> list[str]:
    return ["conda", verb, *(["-p", place.folder] if place.folder else [])]


def _missing(table: Mapping[str, Any], names: Iterable[str]) -> bool:
    """Whether conda-forge lacks one of the packages."""
    return any(table.get(name, {}).get("conda_forge") is False for name in names)
