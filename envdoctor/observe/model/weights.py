"""Which formats the weights in the model's folder have, by the names of its files alone."""

from __future__ import annotations

import re

from envdoctor.facts.values import Fact, Unknown, Value
from envdoctor.observe.request import Request
from envdoctor.text.files import Files, because_of
from envdoctor.text.message import Message

KEYS = ("model.weight_formats",)

#: training_args.bin, optimizer.bin and the like are no weights.
_BIN = re.compile(r"(pytorch_model|adapter_model|consolidated|model)([-.][\w.-]+)?\.bin\Z")


def observe(request: Request) -> list[Fact]:
    """``model.weight_formats``: sorted; empty when a folder holds none. A cached snapshot without any tells nothing."""
    source = request.source
    if source.folder is None:
        return source.unread(KEYS)
    return [Fact("model.weight_formats", _formats(source.folder, source.cached), Message("file names"), "model")]


def _formats(folder: str, cached: bool) -> Value:
    try:
        names = Files().names(folder)
    except OSError as error:
        return Unknown(Message("the model's folder cannot be listed: {}", because_of(error)))
    found = {"safetensors" for name in names if name.endswith(".safetensors")}
    found |= {"gguf" for name in names if name.endswith(".gguf")}
    found |= {"bin" for name in names if _BIN.match(name)}
    if cached and not found:
        return Unknown(Message("the Hub cache holds none of the repository's weights"))
    return tuple(sorted(found))
