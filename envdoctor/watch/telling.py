"""Telling what was seen: each kind of event once a run, in the log and as a flight record."""

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from envdoctor.watch.flags import processes, rank

logger = logging.getLogger("envdoctor.watch")

_EVENTS_KEPT = 64


class Teller:
    """``events`` are dictionaries of ``watch.*`` facts, ``seen`` their kinds, ``last_finite`` the last finite numbers
    of the Trainer's log, ``said`` what the last of them came to, in words. ``busy``: the model is called to find out
    what went wrong."""

    def __init__(self, folder: str | None) -> None:
        self.events: list[dict[str, Any]] = []
        self.seen: set[str] = set()
        self.last_finite: dict[str, float] = {}
        self.said = ""
        self.busy = False
        self._folder = folder

    @contextmanager
    def examining(self) -> Iterator[Callable[..., dict[str, Any]]]:
        """What runs a batch again; the model's calls within are the watch's own."""
        from envdoctor.watch.rerun import examine

        self.busy = True
        try:
            yield examine
        finally:
            self.busy = False

    def record(self, args: Any, facts: dict[str, Any], details: Mapping[str, Any] | None = None) -> None:
        """Judge and tell once for each kind of event; nothing in here may end the run."""
        if facts["watch.event"] in self.seen or len(self.events) >= _EVENTS_KEPT:
            return
        self.seen.add(facts["watch.event"])
        self.events.append(facts)
        self.said = f"{facts['watch.event']} in step {facts['watch.step']}"
        try:
            from envdoctor.watch.flight import tell

            folder = Path(self._folder or getattr(args, "output_dir", None) or ".")
            whose = {"rank": rank(), "processes": processes()} if processes() > 1 else {}
            known = {**whose, **(details or {}), "last_finite": dict(self.last_finite)}
            self.said = tell(facts, known, args, folder, logger) or self.said
        except Exception as error:
            logger.warning("envdoctor.watch: the flight record could not be written: %s", type(error).__name__)
