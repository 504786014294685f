"""The versions that packages carry in their own files, where METADATA drops the build's local tag."""

import os
import re
from typing import NamedTuple

from envdoctor.facts.values import ABSENT, Absent, Unknown
from envdoctor.text.files import Files, because_of
from envdoctor.text.message import Message

#: Packages of PyPI whose METADATA says "2.7.1" and whose file says "2.7.1+cu126": read in the wheels of torch 2.5.1 to
#: 2.15.0, torchvision 0.20.1, torchaudio 2.11.0, torchtext 0.18.0 and torchdata 0.11.0. Not so in those of torchao,
#: torchcodec, triton, xformers, vllm, fbgemm-gpu and bitsandbytes, where both say the same.
VERSION_FILES = {
    "torch": "torch/version.py",
    "torchvision": "torchvision/version.py",
    "torchaudio": "torchaudio/version.py",
    "torchtext": "torchtext/version.py",
    "torchdata": "torchdata/version.py",
}

_LIMIT = 1 << 16
#: ``name = value`` and ``name: annotation = value`` at the left margin.
_ASSIGNMENT = re.compile(r"^([A-Za-z_]\w{0,60})[ \t]*(?::[^=\n]{1,200})?=([^\n]{0,1000})$", re.MULTILINE)
_LITERAL = re.compile(r"""(?:'([^'\\\n]*)'|"([^"\\\n]*)"|(None)|(True|False))[ \t]*(?:#.*)?\Z""")


class VersionFile(NamedTuple):
    """A version file that was read.

    ``folder`` is the folder of packages that it lies in and ``origin`` its name there. ``values`` are its simple
    assignments: text, True, False, absent for None, and unknown for anything that is no literal.
    """

    folder: str
    origin: str
    values: dict[str, str | bool | Absent | Unknown]

    def get(self, name: str) -> str | bool | Absent | Unknown:
        """The value assigned to a name, or unknown when the file does not assign it."""
        return self.values.get(name, Unknown(Message("{} does not say", self.origin)))


def read_version_file(name: str, folders: tuple[str, ...], files: Files) -> VersionFile | Unknown:
    """The version file of the package that would be imported from these folders: the first that has it.

    Unknown, with the reason, when no folder has it or it cannot be read.
    """
    origin = VERSION_FILES[name]
    package, _, file = origin.partition("/")
    for folder in folders:
        if package not in files.names_or_none(folder):
            continue
        try:
            text = files.text(os.path.join(folder, package, file), _LIMIT)
        except FileNotFoundError:
            continue
        except OSError as error:
            return Unknown(Message("{} cannot be read: {}", origin, because_of(error)))
        return VersionFile(folder, origin, _assignments(text, origin))
    return Unknown(Message("there is no {}", origin))


def _assignments(text: str, origin: str) -> dict[str, str | bool | Absent | Unknown]:
    """Simple assignments, the last one of a name. The text is matched, never run."""
    values: dict[str, str | bool | Absent | Unknown] = {}
    for match in _ASSIGNMENT.finditer(text):
        values[match[1]] = _literal(match[2].strip(), Message("{} in {} is no plain value", match[1], origin))
    return values


def _literal(text: str, otherwise: Message) -> str | bool | Absent | Unknown:
    match = _LITERAL.match(text)
    if match is None:
        return Unknown(otherwise)
    single, double, none, truth = match.groups()
    if none:
        return ABSENT
    if truth:
        return truth == "True"
    return single if single is not None else double
