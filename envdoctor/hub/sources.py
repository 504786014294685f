"""The one seam between the commands and where snapshots come from: the Hub, the local cache, or a folder.

A further source (ModelScope) is a module beside the others and a branch in ``reach.open_snapshot``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from os import PathLike, fspath

from envdoctor.hub.header_cache import cache_folder
from envdoctor.hub.header_plan import LARGEST_HEADER
from envdoctor.hub.pair import Choice, choose_pair
from envdoctor.hub.reach import AnySnapshot, Reach, open_snapshot
from envdoctor.hub.transport import Transport

__all__ = ["Pair", "open_one", "open_pair", "open_reach"]


class Pair:
    """Two snapshots to compare.

    ``notes`` are sentences about how they were chosen, ``moved`` is the repository's present name when the one that was
    asked for redirects. ``requests`` (redirects counted) and ``received`` (bytes) grow while the snapshots are read.
    """

    def __init__(self, choice: Choice, reach: Reach) -> None:
        self.old: AnySnapshot = choice.old
        self.new: AnySnapshot = choice.new
        self.notes: tuple[str, ...] = choice.notes
        self.reach = reach

    @property
    def moved(self) -> str | None:
        """The new name of a repository that was renamed."""
        way = self.reach.used_transport
        return way.moved.get(self.new.asked) or way.moved.get(self.old.asked) if way else None

    @property
    def requests(self) -> int:
        """Requests so far."""
        return self.reach.used_transport.requests if self.reach.used_transport else 0

    @property
    def received(self) -> int:
        """Bytes of bodies so far."""
        return self.reach.used_transport.received if self.reach.used_transport else 0


def open_reach(
    *,
    environ: Mapping[str, str],
    cwd: str | PathLike[str],
    aliases: Mapping[str, str] | None = None,
    offline: bool = False,
    timeout: float = 60.0,
    largest_header: int | None = None,
    cache: bool = True,
    notice: Callable[[str], None] | None = None,
) -> Reach:
    """What may be asked for a snapshot, and how.

    ``timeout`` in seconds bounds everything that is asked of the Hub, ``largest_header`` in bytes each header;
    ``cache`` allows reading and writing envdoctor's own cache. Nothing is asked yet.
    """
    return Reach(
        cwd=fspath(cwd),
        environ=environ,
        transport=lambda: Transport(timeout=timeout, notice=notice),
        offline=offline,
        aliases=aliases,
        header_folder=cache_folder(environ) if cache else None,
        largest_header=LARGEST_HEADER if largest_header is None else largest_header,
    )


def open_pair(model: str, old: str | None, new: str | None, reach: Reach) -> Pair:
    """The two snapshots that ``MODEL [OLD] [NEW]`` means; see :func:`envdoctor.hub.pair.choose_pair`.

    Raises :class:`SnapshotError`.
    """
    return Pair(choose_pair(model, old, new, reach), reach)


def open_one(model: str, revision: str | None, reach: Reach) -> AnySnapshot:
    """The snapshot that ``MODEL [REVISION]`` means. Raises :class:`SnapshotError`."""
    return open_snapshot(model, revision, reach)
