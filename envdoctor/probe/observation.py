"""Reading the fields of an observation as they came from a child process, where anything may be missing or odd."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from envdoctor.text.message import Message


class Unreadable(Exception):
    """A field is missing or is not what its name says; the text says which."""


def number(value: object, name: str) -> float:
    """A float that is not negative, as every measure is; the words nan and inf make up for JSON's lack of these."""
    if isinstance(value, str) and value.lower() in ("nan", "inf"):
        return float(value)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise Unreadable(Message("{} is not a number", name))
    if value < 0:
        raise Unreadable(Message("{} is negative", name))
    try:
        return float(value)
    except OverflowError:
        return math.inf


def numbers(observation: Mapping[str, Any], key: str) -> list[float]:
    """A list of :func:`number` that are finite."""
    values = observation.get(key)
    if not isinstance(values, Sequence) or isinstance(values, str):
        raise Unreadable(Message("{} is not a list of numbers", key))
    found = [number(value, key) for value in values]
    if not all(map(math.isfinite, found)):
        raise Unreadable(Message("{} is not finite", key))
    return found


def mapping(observation: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    """An object; empty when it is not there."""
    value = observation.get(key)
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise Unreadable(Message("{} is not an object", key))
    return value


def counts(observation: Mapping[str, Any], key: str) -> dict[str, int]:
    """Names whose count is not zero."""
    found = {
        str(name): whole(value, Message("{} of {}", key, name)) for name, value in mapping(observation, key).items()
    }
    return {name: number_of for name, number_of in found.items() if number_of}


def count(observation: Mapping[str, Any], key: str, required: bool = False) -> int:
    """A count; 0 when it is not there and not ``required``."""
    value = observation.get(key)
    return 0 if value is None and not required else whole(value, key)


def whole(value: object, name: str) -> int:
    """A whole number from 0 on."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise Unreadable(Message("{} is not a count", name))
    return value


def names(observation: Mapping[str, Any], key: str) -> tuple[str, ...]:
    """A list of names; empty when it is not there."""
    value = observation.get(key)
    if value is None:
        return ()
    if not isinstance(value, Sequence) or isinstance(value, str):
        raise Unreadable(Message("{} is not a list of names", key))
    return tuple(str(name) for name in value)
