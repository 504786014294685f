"""Whether transformers, vLLM and SGLang have a class for the model: by the lists in their own installed files.

A release, a development version and an installation from git alike register what these files list. They are read as
text; nothing of them is imported.
"""

import os
import re
from collections.abc import Iterator, Sequence

from envdoctor.facts.values import Fact, Unknown, Value
from envdoctor.observe.request import Request
from envdoctor.system.message import Message

KEYS = ("model.registered", "model.registered_vllm", "model.registered_sglang")
NEEDS = ("model.type", "model.architectures")

_LARGEST = 1 << 20
_MOST_FILES = 500
#: By fact: what is looked up, and the files with the list. Of transformers the second one since 5.6; SGLang takes every
#: class that a file in the folder names as its EntryClass.
_LISTS = {
    "model.registered": (
        "model.type",
        "transformers/models/auto/configuration_auto.py",
        "transformers/models/auto/auto_mappings.py",
    ),
    "model.registered_vllm": ("model.architectures", "vllm/model_executor/models/registry.py"),
    "model.registered_sglang": ("model.architectures", "sglang/srt/models"),
}


def observe(request: Request) -> list[Fact]:
    """Whether a list names the model; unknown where there is no environment on disk, or no such list in it."""
    return [Fact(key, _listed(request, *places), places[1], "model") for key, places in _LISTS.items()]


def _listed(request: Request, asked: str, first: str, *more: str) -> Value:
    given = request.value(asked)
    names = (given,) if isinstance(given, str) else given if isinstance(given, tuple) else ()
    if not names or request.layout is None:
        return Unknown(Message("what the model is, or the environment's files, are not known"))
    words = "|".join(re.escape(name) for name in names)
    # Quoted as in a mapping or a list, or the definition of a class.
    pattern = re.compile(rf"""["'](?:{words})["']\s*[,:]|^class (?:{words})\b|^EntryClass\b.*\b(?:{words})\b""", re.M)
    for folder in request.layout.site_packages:
        texts = list(_texts(request, folder, first))
        if texts:
            texts += [text for name in more for text in _texts(request, folder, name)]
            return any(pattern.search(text) for text in texts)
    return Unknown(Message("no {} in the environment", first))


def _texts(request: Request, folder: str, name: str) -> Iterator[str]:
    """The text of a file, or of every file of a folder."""
    files, path = request.place.files, os.path.join(folder, name)
    inside: Sequence[str] = files.names_or_none(path) if files.is_folder(path) else ()
    paths = [os.path.join(path, one) for one in inside if one.endswith(".py")][:_MOST_FILES] or [path]
    for one in paths:
        try:
            yield files.whole(one, _LARGEST).decode("utf-8", "replace")
        except OSError:
            continue
