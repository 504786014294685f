"""The tokenizer in a model's folder, as far as it can be used without running code of the model's."""

import os
from typing import NamedTuple

from envdoctor.facts.values import Unknown
from envdoctor.models.json_object import LARGEST, JsonProblem, parse_object
from envdoctor.observe.model.reading.model_file import read_bytes
from envdoctor.revision.template.parts.settings import special_tokens, templates_in
from envdoctor.text.message import Message

_LARGEST_TEMPLATE = 1 << 20
#: Tokenizers of models of vision and a quarter of a million words have 35 MB.
_LARGEST_TOKENIZER = 256 << 20


class Tokenizer(NamedTuple):
    """``file`` is the path of tokenizer.json, or None, and then ``missing`` says why; ``template`` is the chat
    template, if there is one, and ``variables`` the special tokens that it may name."""

    file: str | None
    missing: str
    template: str | None
    variables: dict[str, str]


def tokenizer_in(folder: str, shown: str) -> Tokenizer:
    """What is there; ``shown`` is the folder as the user wrote it."""
    file = os.path.join(folder, "tokenizer.json")
    missing = ""
    if not os.path.isfile(file):
        missing = Message("{} has no tokenizer.json, and code of a model is never run", shown)
    elif os.path.getsize(file) > _LARGEST_TOKENIZER:
        missing = Message("tokenizer.json of {} is larger than {} MiB", shown, _LARGEST_TOKENIZER >> 20)
    content = read_bytes(folder, "tokenizer_config.json", LARGEST)
    try:
        config = {} if isinstance(content, Unknown) else parse_object(content).data
    except JsonProblem:
        config = {}
    own = read_bytes(folder, "chat_template.jinja", _LARGEST_TEMPLATE)
    if isinstance(own, Unknown):
        template = (templates_in(config.get("chat_template")) or {}).get("default")
    else:
        template = own.decode("utf-8-sig", "replace")
    return Tokenizer(None if missing else file, missing, template, special_tokens(config))
