"""What the model's folder says besides its configuration: formats of weights by names of files, and the tokenizer's
class and the side it pads on (``tokenizer_config.json``)."""

import re

from envdoctor.facts.values import ABSENT, Fact, Unknown, Value
from envdoctor.observe.errors import ObservationError
from envdoctor.observe.model.reading.model_file import read_object
from envdoctor.observe.request import Request
from envdoctor.system.files import Files, because_of
from envdoctor.system.message import Message, said_by

KEYS = ("model.padding_side", "model.tokenizer_class", "model.weight_formats")

_TOKENIZER = "tokenizer_config.json"
#: training_args.bin, optimizer.bin and the like are no weights.
_BIN = re.compile(r"(pytorch_model|adapter_model|consolidated|model)([-.][\w.-]+)?\.bin\Z")


def observe(request: Request) -> list[Fact]:
    """``model.weight_formats``: sorted; empty when a folder holds none, while a cached snapshot without any tells
    nothing. Of the tokenizer ABSENT where its file names none, unknown where there is no such file or it cannot be
    read."""
    source = request.source
    if source.folder is None:
        return source.unread(KEYS)
    formats = Fact("model.weight_formats", _formats(source.folder, source.cached), Message("file names"), "model")
    try:
        config = read_object(source.folder, _TOKENIZER, Message("the model"))
    except ObservationError as error:
        # A model is judged by its configuration; a broken tokenizer file leaves what it would have told unknown.
        config = Unknown(said_by(error))
    if isinstance(config, Unknown):
        return [*(Fact(key, config, _TOKENIZER, "model") for key in KEYS[:2]), formats]
    side: Value = ABSENT if config.get("padding_side") is None else config["padding_side"]
    if side is not ABSENT and side not in ("left", "right"):
        side = Unknown(Message("padding_side of {} is neither left nor right", _TOKENIZER))
    kind: Value = ABSENT if config.get("tokenizer_class") is None else config["tokenizer_class"]
    if kind is not ABSENT and not (isinstance(kind, str) and kind.isprintable() and len(kind) <= 200):
        kind = Unknown(Message("tokenizer_class of {} is not a name", _TOKENIZER))
    return [
        Fact("model.padding_side", side, _TOKENIZER, "model"),
        Fact("model.tokenizer_class", kind, _TOKENIZER, "model"),
        formats,
    ]


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
