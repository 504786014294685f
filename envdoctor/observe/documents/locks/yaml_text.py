"""YAML as mappings, lists and texts with their lines, read event by event: neither depth nor aliases cost anything."""

from typing import Any

from envdoctor.observe.documents.locks.lock import LockError

__all__ = ["Text", "read_yaml"]

#: Bytes: libyaml reads a megabyte in a second, PyYAML's own reader a tenth of that.
_LARGEST, _LARGEST_SLOW = 4 << 20, 512 << 10
_DEEPEST = 20


class Text(str):
    """A scalar as it is written, and its line (from 1)."""

    line = 0


def read_yaml(text: str) -> Any:
    """The first document: ``dict``, ``list`` and :class:`Text`. Raises :class:`LockError`."""
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    if len(text) > (_LARGEST_SLOW if loader is yaml.SafeLoader else _LARGEST):
        raise LockError("is too large to be read as YAML")
    top: list[Any] = []
    open_: list[list[Any]] = [top]
    made: list[type] = [list]
    try:
        for event in yaml.parse(text, Loader=loader):
            line = event.start_mark.line + 1 if event.start_mark is not None else 0
            if isinstance(event, yaml.AliasEvent):
                raise LockError(f"uses an alias of YAML in line {line}, and no lock does")
            if isinstance(event, yaml.ScalarEvent):
                scalar = Text(event.value)
                scalar.line = line
                open_[-1].append(scalar)
            elif isinstance(event, yaml.CollectionStartEvent):
                open_.append([])
                made.append(dict if isinstance(event, yaml.MappingStartEvent) else list)
                if len(open_) > _DEEPEST:
                    raise LockError(f"is nested more than {_DEEPEST} levels deep")
            elif isinstance(event, yaml.CollectionEndEvent):
                values, kind = open_.pop(), made.pop()
                pairs = zip(values[::2], values[1::2], strict=True)
                open_[-1].append(
                    values if kind is list else {key: value for key, value in pairs if isinstance(key, str)}
                )
            elif isinstance(event, yaml.DocumentEndEvent):
                break
    except yaml.YAMLError as error:
        raise LockError(f"is not YAML: {' '.join(str(error).split())[:200]}") from None
    return top[0] if top else None
