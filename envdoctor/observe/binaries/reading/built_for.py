"""Which torch and CUDA a package says it was built for: in a file of its own, its wheel's name, or its local version.

What it says explains a finding; whether it fits is decided by its symbols where they can be read.
"""

import json
import os
import re
from collections.abc import Callable

from envdoctor.text.files import Files
from envdoctor.text.message import Message
from envdoctor.versions.local_tag import BuiltFor, said_by_tag

_LIMIT = 1 << 16
#: The dictionary that deepspeed's setup.py writes: torch_info={'version': '2.1', 'cuda_version': '12.1', …}
_DEEPSPEED = r"^torch_info\s*=\s*\{([^}\n]{0,1000})\}"
_PAIR = r"""['"](version|cuda_version)['"]\s*:\s*['"](\d{1,2}\.\d{1,3})['"]"""


def built_for(name: str, version: str, metadata: str, files: Files) -> BuiltFor:
    """What the distribution ``name`` says, the surest place first: its own file, its wheel's name, its local version.

    ``metadata`` is its metadata directory; a place that cannot be read says nothing.
    """
    own = _OWN_FILES.get(name)
    if own is not None:
        said = _read(os.path.join(os.path.dirname(metadata), *own[0].split("/")), own[1], files)
        if said.torch or said.cuda:
            return said._replace(says=own[0])
    said = _read(os.path.join(metadata, "direct_url.json"), _wheel_name, files)
    tagged = said_by_tag(version.partition("+")[2])
    if said.torch or (said.cuda and not tagged.torch):
        return said._replace(says="the name of its wheel")
    return tagged._replace(says=Message("its local version")) if tagged.torch or tagged.cuda else BuiltFor()


def _read(path: str, parse: Callable[[str], BuiltFor], files: Files) -> BuiltFor:
    try:
        return parse(files.text(path, _LIMIT))
    except (OSError, ValueError, RecursionError):  # a ValueError is text that is no JSON
        return BuiltFor()


def _xformers(text: str) -> BuiltFor:
    match json.loads(text):
        case {"version": dict(said)}:
            torch, cuda = said.get("torch"), said.get("cuda")
        case _:
            return BuiltFor()
    release = torch.partition("+")[0] if isinstance(torch, str) else ""
    parts = release.split(".")
    plain = 2 <= len(parts) <= 3 and all(len(part) <= 3 and part.isdecimal() and part.isascii() for part in parts)
    # CUDA as nvcc numbers it: 1208
    number = cuda if isinstance(cuda, int) and 1000 <= cuda < 10000 else None
    return BuiltFor(release if plain else None, f"{number // 100}.{number % 100}" if number else None)


def _deepspeed(text: str) -> BuiltFor:
    match = re.search(_DEEPSPEED, text, re.MULTILINE)
    said = {key: value for key, value in re.findall(_PAIR, match[1]) if value != "0.0"} if match else {}
    return BuiltFor(said.get("version"), said.get("cuda_version"))


def _wheel_name(text: str) -> BuiltFor:
    match json.loads(text):
        case {"url": str(url)} if url.endswith(".whl"):
            version = url.rpartition("/")[2].replace("%2B", "+").replace("%2b", "+").split("-")[1:2]
            return said_by_tag(version[0].partition("+")[2]) if version else BuiltFor()
    return BuiltFor()


#: Packages that write what they were built for into a file, by the path below the folder of packages.
_OWN_FILES: dict[str, tuple[str, Callable[[str], BuiltFor]]] = {
    "xformers": ("xformers/cpp_lib.json", _xformers),
    "deepspeed": ("deepspeed/git_version_info_installed.py", _deepspeed),
}
