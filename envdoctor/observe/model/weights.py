"""Which formats the weights in the model's folder have, by the names of its files alone."""

from __future__ import annotations

import os
import re

from envdoctor.facts.values import Fact, Unknown, Value
from envdoctor.observe.request import Request

__all__ = ["KEYS", "observe"]

KEYS = ("model.weight_formats",)

_MAX_FILES = 20_000
#: training_args.bin, optimizer.bin and the like are no weights.
_BIN = re.compile(r"(pytorch_model|adapter_model|consolidated|model)([-.][\w.-]+)?\.bin\Z")


def observe(request: Request) -> list[Fact]:
    """``model.weight_formats``: sorted; empty when a folder holds none. A cached snapshot without any tells nothing."""
    source = request.source
    if source.folder is None:
        return source.unread(KEYS)
    return [Fact("model.weight_formats", _formats(source.folder, source.cached), "file names", "model")]


def _formats(folder: str, cached: bool) -> Value:
    found: set[str] = set()
    try:
        with os.scandir(folder) as entries:
            for number, entry in enumerate(entries):
                if number == _MAX_FILES:
                    return Unknown(f"the model's folder holds more than {_MAX_FILES} files")
                if entry.name.endswith(".safetensors"):
                    found.add("safetensors")
                elif entry.name.endswith(".gguf"):
                    found.add("gguf")
                elif _BIN.match(entry.name):
                    found.add("bin")
    except OSError as error:
        return Unknown(f"the model's folder cannot be listed: {error.strerror}")
    if cached and not found:
        return Unknown("the Hub cache holds none of the repository's weights")
    return tuple(sorted(found))
