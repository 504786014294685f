"""What packages say in files of their own: versions, where METADATA drops the build's local tag or the code is another
release, and the compiled files in the list of a distribution (RECORD)."""

import errno
import os
import re
from typing import NamedTuple

from envdoctor.facts.values import ABSENT, Absent, Unknown
from envdoctor.system.files import Files, because_of
from envdoctor.system.message import Message
from envdoctor.versions.pep440 import is_version, same_release

#: Packages of PyPI whose METADATA says "2.7.1" and whose version.py says "2.7.1+cu126": read in the wheels of torch
#: 2.5.1 to 2.15.0, torchvision 0.20.1, torchaudio 2.11.0, torchtext 0.18.0 and torchdata 0.11.0. Not so in those of
#: torchao, torchcodec, triton, xformers, vllm, fbgemm-gpu and bitsandbytes, where both say the same.
VERSION_FILES = ("torch", "torchvision", "torchaudio", "torchtext", "torchdata")

_LIMIT = 1 << 16
#: ``name = value`` and ``name: annotation = value`` at the left margin.
_ASSIGNMENT = re.compile(r"^([A-Za-z_]\w{0,60})[ \t]*(?::[^=\n]{1,200})?=([^\n]{0,1000})$", re.MULTILINE)
_LITERAL = re.compile(r"""(?:'([^'\\\n]*)'|"([^"\\\n]*)"|None)[ \t]*(?:#.*)?\Z""")
#: Where a package may say its own version.
_FILES = ("__init__.py", "version.py", "_version.py", "__version__.py")
_OWN_VERSION = re.compile(r"""\n__version__(?:[ \t]*:[ \t]*str)?[ \t]*=[ \t]*["']([0-9][^"'\\\r\n]{0,60})["']""")


class VersionFile(NamedTuple):
    """A version file that was read.

    ``folder`` is the folder of packages that it lies in and ``origin`` its name there. ``values`` are its simple
    assignments: text, absent for None, and unknown for anything else.
    """

    folder: str
    origin: str
    values: dict[str, str | Absent | Unknown]

    def get(self, name: str) -> str | Absent | Unknown:
        """Return the value assigned to a name, or unknown when the file does not assign it."""
        return self.values.get(name, Unknown(Message("{} does not say", self.origin)))


def read_version_file(name: str, folders: tuple[str, ...], files: Files) -> VersionFile | Unknown:
    """Return the version file of the package that would be imported from these folders: the first that has it.

    Unknown, with the reason, when no folder has it or it cannot be read.
    """
    origin = f"{name}/version.py"
    for folder in folders:
        if name not in files.names_or_none(folder):
            continue
        try:
            text = files.text(os.path.join(folder, name, "version.py"), _LIMIT)
        except FileNotFoundError:
            continue
        except OSError as error:
            return Unknown(Message("{} cannot be read: {}", origin, because_of(error)))
        # The last assignment of a name holds. The text is matched, never run.
        values: dict[str, str | Absent | Unknown] = {}
        for key, value in _ASSIGNMENT.findall(text):
            plain = _LITERAL.match(value.strip())
            otherwise = Unknown(Message("{} in {} is no plain value", key, origin))
            values[key] = (
                otherwise if plain is None else next((item for item in plain.groups() if item is not None), ABSENT)
            )
        return VersionFile(folder, origin, values)
    return Unknown(Message("there is no {}", origin))


def module_in(folder: str, module: str, files: Files) -> str | None:
    """Return the regular package or the module file that a folder gives under this name."""
    package = os.path.join(folder, module)
    if files.is_file(os.path.join(package, "__init__.py")):
        return package
    return f"{package}.py" if files.is_file(f"{package}.py") else None


def version_of_code(place: str, files: Files) -> tuple[str, str] | None:
    """Return the plain text that a package (or a module file) assigns to ``__version__``, and the name of the file
    below the package's folder. The text is matched, never run; None when no file says it so."""
    for name in _FILES if not place.endswith(".py") else ("",):
        path = os.path.join(place, name) if name else place
        match = _OWN_VERSION.search("\n" + files.text_or_empty(path, _LIMIT))
        if match and is_version(match[1]):
            return match[1], f"{os.path.basename(place)}/{name}" if name else os.path.basename(place)
    return None


def another_version(
    metadata: str, version: str, place: str, files: Files, *, listed: bool = True
) -> tuple[str, str] | None:
    """Return the version of the code at ``place`` and its file, if it is another release than the metadata's.

    ``listed``: the code is what an installer unpacked. Makers forget to raise ``__version__``; so the file must also
    be another one than RECORD lists. Where nothing lists it, nothing is said.
    """
    pair = version_of_code(place, files)
    if pair is None or same_release(pair[0], version):
        return None
    return pair if not listed or _replaced(metadata, place, pair[1], files) else None


def _replaced(metadata: str, place: str, name: str, files: Files) -> bool:
    """Return whether a file is another one than RECORD says, by its size or its hash."""
    try:
        record = files.head(os.path.join(metadata, "RECORD"), RECORD_LIMIT)
        content = files.head(os.path.join(os.path.dirname(place), *name.split("/")), _LIMIT << 4)
    except OSError:
        return False
    match = re.search(rb"^%s,sha256=([A-Za-z0-9_-]{43}),\d+\r?$" % re.escape(name.encode()), record, re.MULTILINE)
    if match is None:
        return False
    from base64 import urlsafe_b64encode
    from hashlib import sha256

    return urlsafe_b64encode(sha256(content).digest()).rstrip(b"=") != match[1]


RECORD_LIMIT = 8 << 20
_ENDINGS = (b".so", b".pyd", b".dll")
_MOST = 500
#: A name that is neither quoted nor too long, and does not lead out of the folder.
_PLAIN = re.compile(rb"(?![\"/])(?!.*\.\.)[^\0]{0,400}\Z", re.DOTALL)


def listed_libraries(metadata: str, files: Files) -> list[str]:
    """Return what RECORD lists as extension modules and shared libraries, by their names below the folder of packages.
    Raises ``OSError``, ``FileNotFoundError`` for an empty list too."""
    libraries: list[str] = []
    piece = b""
    for piece in files.lines(os.path.join(metadata, "RECORD"), RECORD_LIMIT):
        names = (line.partition(b",")[0] for line in piece.split(b"\n"))
        libraries += [name.decode("utf-8", "replace") for name in names if is_library(name) and _PLAIN.match(name)]
        if len(libraries) >= _MOST:
            break
    if not piece:
        raise FileNotFoundError(errno.ENOENT, Message("it is empty"), metadata)
    return libraries[:_MOST]


def is_library(name: bytes) -> bool:
    """Return whether a file of that name is an extension module or a shared library."""
    return name.endswith(_ENDINGS) or name.rstrip(b".0123456789").endswith(b".so")
