"""Files of a model's folder, read as hostile input: regular files up to a size, JSON objects with their bounds, and the
code that the ``auto_map`` of a configuration names."""

import json
import os
import re
import sys
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from envdoctor.facts.values import Unknown
from envdoctor.observe.errors import ObservationError
from envdoctor.observe.model.names import printable
from envdoctor.system.files import Files, because_of
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
    """Return the object in UTF-8 bytes. Raises :class:`JsonProblem`."""
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
        kinds = {list: Message("a list"), str: "text", type(None): "null", bool: Message("true or false")}
        raise JsonProblem("is not a JSON object but {}", kinds.get(type(data), Message("a number")))
    _check_shape(data)
    return JsonObject(data, tuple(repeated))


def _check_shape(data: dict[str, Any]) -> None:
    """Raise :class:`JsonProblem` for what is too deep or too long. Level by level: a hostile file breaks recursion."""
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


_FILES = Files()


def read_bytes(folder: str, name: str, limit: int) -> bytes | Unknown:
    """Return the content of a file, or why not: missing, larger than ``limit`` bytes, no regular file.

    Symbolic links are followed (in the Hub cache every file is one); a pipe or a device is not waited for.
    """
    try:
        return _FILES.whole(os.path.join(folder, name), limit)
    except FileNotFoundError:
        return Unknown(Message("the model's folder holds no {}", printable(name)))
    except OSError as error:
        return Unknown(Message("{} cannot be read: {}", printable(name), because_of(error)))


def read_object(folder: str, name: str, model: str) -> dict[str, Any] | Unknown:
    """Return a JSON object from a file; unknown when there is no such file.

    Raises :class:`ObservationError` when it cannot be read or is no JSON object: the user named this model, so judging
    without it would answer another question. ``model`` is named in it.
    """
    content = read_bytes(folder, name, LARGEST)
    if isinstance(content, Unknown):
        if os.path.exists(os.path.join(folder, name)):
            raise ObservationError("--model {}: {}", printable(model), content.reason)
        return content
    try:
        return parse_object(content).data
    except JsonProblem as error:
        raise ObservationError("{} of {} {}", name, printable(model), error) from None


#: Configurations whose auto_map transformers follows.
AUTO_MAP_FILES = (
    "config.json",
    "tokenizer_config.json",
    "processor_config.json",
    "preprocessor_config.json",
    "video_preprocessor_config.json",
)


def entries(data: Mapping[str, object]) -> Iterator[tuple[str, str]]:
    """Yield ``auto_map`` of a configuration, and the classes of its custom pipelines: keys (``AutoModel``,
    ``AutoTokenizer.0``) with ``module.Class``, behind ``repository--`` where it is another one's."""
    for key, value in _table(data.get("auto_map")):
        if isinstance(value, str):
            yield key, value
        elif isinstance(value, list):
            yield from ((f"{key}.{index}", entry) for index, entry in enumerate(value) if isinstance(entry, str))
    for task, pipeline in _table(data.get("custom_pipelines")):
        for key, value in _table(pipeline):
            if key == "impl" and isinstance(value, str):
                yield f"custom_pipelines.{task}", value


def _table(value: object) -> Iterator[tuple[str, object]]:
    # The oldest form of auto_map of a tokenizer is a list: [slow class, fast class].
    if isinstance(value, dict):
        yield from value.items()
    elif isinstance(value, list):
        yield "AutoTokenizer", value
