"""JSON objects of a model's files, read as hostile input: size, depth, repeated keys, numbers without end."""

import json
import re
import sys
from typing import Any, NamedTuple

from envdoctor.system.message import Message, MessageError

#: Bytes of a configuration. The largest config.json of the Hub's well-known models is far below 1 MiB;
#: tokenizer_config.json reaches a few.
LARGEST = 16 << 20
#: Levels of nesting that are followed. Configurations of the Hub's models have at most about ten.
DEEPEST = 60
#: Characters of all dotted names (``a.b.c``) together: a long name of a table counts for each of its keys.
_LONGEST_NAMES = 64 << 20
_LONG_NUMBER = re.compile(rb"(?<![0-9])[0-9]{4301}")


class JsonProblem(MessageError, ValueError):
    """The bytes are no JSON object that can be read; the message is what follows the file's name in a sentence."""


class JsonObject(NamedTuple):
    """A JSON object. ``repeated`` are keys that are given twice in one object (readers disagree on which one counts;
    ``data`` holds the last, as Python and transformers do)."""

    data: dict[str, Any]
    repeated: tuple[str, ...] = ()


def parse_object(content: bytes) -> JsonObject:
    """The object in UTF-8 bytes. Raises :class:`JsonProblem`."""
    repeated: list[str] = []

    def pairs(items: list[tuple[str, Any]]) -> dict[str, Any]:
        table = dict(items)
        if len(table) != len(items) and len(repeated) < 20:
            seen: set[str] = set()
            for key, _ in items:
                if key in seen and key not in repeated:
                    repeated.append(key)
                seen.add(key)
        return table

    # Before 3.10.7 Python read a number of a million digits, in minutes.
    if not hasattr(sys, "get_int_max_str_digits") and _LONG_NUMBER.search(content):
        raise JsonProblem("holds a number that is too long to read")
    try:
        data = json.loads(content.decode("utf-8-sig"), object_pairs_hook=pairs)
    except UnicodeDecodeError as error:
        raise JsonProblem("is not UTF-8 text: byte {}", error.start) from None
    except json.JSONDecodeError as error:
        raise JsonProblem("is not JSON: line {}, column {}: {}", error.lineno, error.colno, error.msg) from None
    except ValueError:
        raise JsonProblem("holds a number that is too long to read") from None
    except (RecursionError, MemoryError):
        raise JsonProblem("is nested too deeply, or too large in memory, to be read") from None
    if not isinstance(data, dict):
        raise JsonProblem("is not a JSON object but {}", _kind(data))
    _check_shape(data)
    return JsonObject(data, tuple(repeated))


def _kind(data: object) -> str:
    if isinstance(data, list):
        return Message("a list")
    if isinstance(data, str):
        return "text"
    return "null" if data is None else Message("true or false") if isinstance(data, bool) else Message("a number")


def _check_shape(data: dict[str, Any]) -> None:
    """Raises :class:`JsonProblem` for what is too deep or too long to be written flat. Level by level: recursion is
    what a hostile file would break."""
    layer: list[tuple[Any, int]] = [(data, 0)]
    spelled = 0
    for _ in range(DEEPEST):
        inner: list[tuple[Any, int]] = []
        for container, prefix in layer:
            if isinstance(container, dict):
                spelled += sum(map(len, container)) + (prefix + 1) * len(container)
                inner += [(v, prefix + 1 + len(k)) for k, v in container.items() if isinstance(v, (dict, list))]
            else:
                inner += [(child, prefix) for child in container if isinstance(child, (dict, list))]
        if spelled > _LONGEST_NAMES:
            raise JsonProblem("has keys that are too long")
        if not inner:
            return
        layer = inner
    raise JsonProblem("is nested more than {} levels deep", DEEPEST)
