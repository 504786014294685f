"""Facts, and columns of records, by the kind of value that a reader can use."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from envdoctor.facts.values import Absent, Records, Unknown, Value

_NOT_KNOWN = Unknown("not known")


class View:
    """What ``read`` gives for a key, by kind: None where it is of another kind, absent or unknown."""

    __slots__ = ("value",)

    def __init__(self, read: Callable[[str], Value]) -> None:
        self.value = read

    @classmethod
    def of(cls, item: Mapping[str, Value]) -> View:
        """View the columns of a record; one that it lacks is unknown."""
        return cls(lambda column: item.get(column, _NOT_KNOWN))

    def text(self, key: str) -> str | None:
        """Return a text: a name, a version."""
        value = self.value(key)
        return value if isinstance(value, str) else None

    def number(self, key: str) -> float | None:
        """Return a number."""
        value = self.value(key)
        return value if isinstance(value, (int, float)) and not isinstance(value, bool) else None

    def words(self, key: str) -> tuple[str, ...] | None:
        """Return a list of texts."""
        value = self.value(key)
        return value if isinstance(value, tuple) else None

    def records(self, key: str) -> Records | None:
        """Return a list of things."""
        value = self.value(key)
        return value if isinstance(value, Records) else None

    def each(self, key: str) -> Iterator[View]:
        """View each of a list of things; none where the list is not known."""
        return map(View.of, self.records(key) or ())

    def absent(self, key: str) -> bool:
        """Return whether it is known that there is no such thing."""
        return isinstance(self.value(key), Absent)

    def unknown(self, *keys: str) -> Unknown | None:
        """Return the first of these that is not known, with its reason."""
        return next((value for key in keys if isinstance(value := self.value(key), Unknown)), None)
