"""Facts, and columns of records, by the kind of value that a reader can use."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping

from envdoctor.facts.values import NOT_KNOWN, Absent, Records, Unknown, Value


class Readable(ABC):
    """Values by key and by kind: None where one is of another kind, absent or unknown."""

    __slots__ = ()

    @abstractmethod
    def value(self, key: str) -> Value:
        """Return the value, whatever it is."""

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

    def items(self, key: str) -> tuple[Mapping[str, Value], ...]:
        """Return the items of a list of things; none where the list is not known."""
        value = self.value(key)
        return value.items if isinstance(value, Records) else ()

    def each(self, key: str) -> "Iterator[View]":
        """Yield a view of each item of a list; nothing if the list is unknown."""
        return map(View.of, self.items(key))

    def absent(self, key: str) -> bool:
        """Return whether it is known that there is no such thing."""
        return isinstance(self.value(key), Absent)

    def unknown(self, *keys: str) -> Unknown | None:
        """Return the first of these that is not known, with its reason."""
        return next((value for key in keys if isinstance(value := self.value(key), Unknown)), None)

    def known(self, key: str) -> bool:
        """Return whether there is such a thing, as far as is known."""
        return not isinstance(self.value(key), (Unknown, Absent))


class View(Readable):
    """What ``read`` gives for a key."""

    __slots__ = ("_read",)

    def __init__(self, read: Callable[[str], Value]) -> None:
        self._read = read

    def value(self, key: str) -> Value:
        return self._read(key)

    @classmethod
    def of(cls, item: Mapping[str, Value]) -> "View":
        """Return a view of a record's columns; a missing column is unknown."""
        return cls(lambda column: item.get(column, NOT_KNOWN))
