"""``tokenizer_config.json``: the tokenizer's class and the side it pads on."""

from __future__ import annotations

from envdoctor.facts.values import ABSENT, Fact, Unknown, Value
from envdoctor.observe.errors import ObservationError
from envdoctor.observe.model.reading.model_file import read_object
from envdoctor.observe.request import Request
from envdoctor.text.message import Message, said_by

KEYS = ("model.padding_side", "model.tokenizer_class")


def observe(request: Request) -> list[Fact]:
    """Both facts; ABSENT where the file names none, unknown where there is no such file or it cannot be read."""
    source = request.source
    if source.folder is None:
        return source.unread(KEYS)
    name = "tokenizer_config.json"
    try:
        config = read_object(source.folder, name, Message("the model"))
    except ObservationError as error:
        # A model is judged by its configuration; a broken tokenizer file leaves what it would have told unknown.
        config = Unknown(said_by(error))
    if isinstance(config, Unknown):
        return [Fact(key, config, name, "model") for key in KEYS]
    side: Value = ABSENT if config.get("padding_side") is None else config["padding_side"]
    if side is not ABSENT and side not in ("left", "right"):
        side = Unknown(Message("padding_side of {} is neither left nor right", name))
    kind: Value = ABSENT if config.get("tokenizer_class") is None else config["tokenizer_class"]
    if kind is not ABSENT and not (isinstance(kind, str) and kind.isprintable() and len(kind) <= 200):
        kind = Unknown(Message("tokenizer_class of {} is not a name", name))
    return [Fact("model.padding_side", side, name, "model"), Fact("model.tokenizer_class", kind, name, "model")]
