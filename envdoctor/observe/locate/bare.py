"""Environments without an interpreter to ask: a bare folder of packages, and the root folder of an image."""

import os
from collections.abc import Iterator

from envdoctor.facts.values import Unknown
from envdoctor.observe.locate.installation import (
    WINDOWS,
    Installation,
    at_prefix,
    has_standard_library,
    implementation_of,
    version_from_files,
)
from envdoctor.observe.locate.layout import EnvironmentNotFound, ImportPath, Layout, folders_of
from envdoctor.system.files import Budget, Files, because_of
from envdoctor.system.message import Message

#: Where images keep their environment. The first that holds a distribution is taken: what an image adds on purpose
#: comes before the Python of its distribution.
_IN_IMAGE = (
    *("opt/venv", "venv", ".venv", "app/.venv", "workspace/.venv"),
    *("opt/conda/envs/*", "opt/conda", "usr/local", "usr"),
)
_METADATA = (".dist-info", ".egg-info")


def at_path(folder: str, because: Message) -> Layout:
    """Return a bare folder: what ``pip install --target`` fills, or a site-packages folder taken for itself.

    ``.pth`` files count only in a folder that is called like a site folder; the interpreter is known only when the
    folder lies where an installation keeps its packages. Raises :class:`EnvironmentNotFound`.
    """
    files = Files(budget=Budget())
    _demand_folder(folder, because)
    if files.is_file(os.path.join(folder, "pyvenv.cfg")):
        raise EnvironmentNotFound("{}: {} is a virtual environment; use --python {}", because, folder, folder)
    path = ImportPath(files)
    if os.path.basename(folder) in ("site-packages", "dist-packages"):
        path.add_site(folder)
    else:
        path.add(folder)
    owner = _owner(folder, files)
    pair = version_from_files(owner, files) if owner is not None else None
    version, origin = pair or (Unknown(Message("a folder of packages does not say which Python uses it")), "")
    return Layout.of(
        path,
        prefix=folder,
        executable=None,
        python_version=version,
        implementation=implementation_of(owner) if owner else Unknown(Message("a folder of packages does not say it")),
        kind="path",
        because=because,
        live=True,
        version_origin=origin,
    )


def at_root(root: str, because: Message) -> Layout:
    """Return the environment inside an image's root folder. Links are resolved inside it, and nothing of it is started.

    Raises :class:`EnvironmentNotFound` when none of the usual places holds a distribution.
    """
    _demand_folder(root, because)
    files = Files(root, Budget())
    whole: list[tuple[Installation, ImportPath]] = []
    without_python: list[tuple[Installation, ImportPath]] = []
    for prefix in _prefixes(root, files):
        installation = at_prefix(prefix, files)
        if installation is None:
            continue
        path = folders_of(installation, files, environ=None, cwd=root)
        if any(name.endswith(_METADATA) for folder in path.folders for name in files.names_or_none(folder)):
            # Fedora's /usr/local holds packages for the Python of /usr, which lists them itself.
            library = installation.library or ""
            is_whole = installation.kind != "system" or has_standard_library(prefix, library, files)
            (whole if is_whole else without_python).append((installation, path))
    whole = whole or without_python
    if not whole:
        raise EnvironmentNotFound(
            "{}: no installed Python package was found below {}; looked in {}. If they are elsewhere, point "
            "at their folder with --path {}.",
            because,
            root,
            ", ".join(_IN_IMAGE),
            os.path.join(root, "DIR"),
        )
    installation, path = whole[0]
    here = "/" + os.path.relpath(installation.prefix, root).replace(os.sep, "/")
    notes: list[Message] = []
    if len(whole) > 1:
        others = ", ".join("/" + os.path.relpath(other.prefix, root).replace(os.sep, "/") for other, _ in whole[1:])
        notes.append(Message("the image has more environments, which are not judged: {}", others))
    unknown = Message("no file of the image gives it")
    if installation.library not in (None, WINDOWS):
        unknown = Message("the image's files say {}, but not which patch release", installation.library)
    version, origin = version_from_files(installation, files) or (Unknown(unknown), "")
    path.folders = [files.real(folder) for folder in path.folders]
    return Layout.of(
        path,
        notes,
        prefix=installation.prefix,
        executable=None,
        python_version=version,
        implementation=implementation_of(installation),
        kind="root",
        because=Message("{}, {} inside it", because, here),
        live=False,
        version_origin=origin,
    )


def _prefixes(root: str, files: Files) -> Iterator[str]:
    for place in _IN_IMAGE:
        prefix = os.path.join(root, *place.split("/"))
        if place.endswith("*"):
            parent = os.path.dirname(prefix)
            yield from (os.path.join(parent, name) for name in files.names_or_none(parent))
        else:
            yield prefix


def _demand_folder(folder: str, option: str) -> None:
    try:
        os.scandir(folder).close()
    except FileNotFoundError:
        raise EnvironmentNotFound("{}: {} does not exist", option, folder) from None
    except NotADirectoryError:
        raise EnvironmentNotFound("{}: {} is not a folder", option, folder) from None
    except (OSError, ValueError) as error:
        raise EnvironmentNotFound("{}: {} cannot be listed: {}", option, folder, because_of(error)) from None


def _owner(folder: str, files: Files) -> Installation | None:
    """Return the installation in whose library folder this folder lies: ``PREFIX/lib/python3.11/site-packages``."""
    library = os.path.basename(os.path.dirname(folder))
    prefix = os.path.dirname(os.path.dirname(folder))
    if library != WINDOWS:
        prefix = os.path.dirname(prefix)
    installation = at_prefix(prefix, files, library)
    return installation if installation is not None and installation.library == library else None
