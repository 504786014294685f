"""What tokenizer_config.json says of chat templates, and of the tokens that they use."""

from collections.abc import Mapping
from typing import Any

#: What a token can be for.
_ROLES = ("bos_token", "eos_token", "pad_token", "unk_token", "sep_token", "cls_token", "mask_token")


def templates_in(value: object) -> dict[str, str] | None:
    """Return ``chat_template`` by name: of one text (``default``), a list of named texts, or a table; else None."""
    match value:
        case None:
            return {}
        case str():
            return {"default": value}
        case dict():
            pairs = list(value.items())
        case list() if all(isinstance(item, dict) for item in value):
            pairs = [(item.get("name"), item.get("template")) for item in value]
        case _:
            return None
    templates = {name: text for name, text in pairs if isinstance(name, str) and isinstance(text, str)}
    return templates if len(templates) == len(pairs) else None


def special_tokens(config: Mapping[str, Any]) -> dict[str, str]:
    """Return the tokens of the configuration by the names that templates know."""
    tokens: dict[str, str] = {}
    for name in _ROLES:
        match config.get(name):
            case str(token) | {"content": str(token)}:
                tokens[name] = token[:200]
    return tokens
