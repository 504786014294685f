"""Trying again: which failures are worth it, how long to wait, and when to stop."""

from __future__ import annotations

import random
import re
import time
from collections.abc import Callable, Mapping
from typing import TypeVar

from envdoctor.hub.transport_error import Failure, TransportError

__all__ = ["ATTEMPTS", "Again", "asked_wait", "persist"]

Result = TypeVar("Result")

ATTEMPTS = 4


class Again(Exception):
    """What went wrong may go right the next time. ``wait`` is what the server asks for, in seconds."""

    def __init__(self, message: str, kind: Failure = "protocol", wait: float | None = None, status: int = 0) -> None:
        super().__init__(message)
        self.kind = kind
        self.wait = wait
        self.status = status


def persist(
    once: Callable[[], Result],
    *,
    host: str,
    pause: float,
    seconds_left: Callable[[], float],
    notice: Callable[[str], None],
) -> Result:
    """Try up to four times, with pauses that grow from ``pause`` or that the server names.

    Raises :class:`TransportError`, at once when the pause would go beyond the deadline.
    """
    attempt = 0
    while True:
        attempt += 1
        try:
            return once()
        except Again as again:
            grown = pause * 2 ** (attempt - 1) * random.uniform(0.5, 1.0)  # noqa: S311
            wait = grown if again.wait is None else again.wait
            message, kind, status = str(again), again.kind, again.status
            # A server that is silent, or wrong, is asked twice; one that is busy may need longer.
            last = attempt == (2 if kind in ("timeout", "protocol") else ATTEMPTS)
            asks = f"; it asks to wait {again.wait:.0f} s" if again.wait else ""
        if last or wait >= seconds_left():
            tried = f" ({attempt} attempts)" if attempt > 1 else ""
            raise TransportError(f"{message}{tried}{asks}", kind, server=host, status=status)
        if wait > 2:
            notice(f"{host} is busy: waiting {wait:.0f} s")
        time.sleep(wait)


def asked_wait(headers: Mapping[str, str]) -> float | None:
    """Seconds to wait by Retry-After (seconds or a date) or by ``RateLimit: "api";r=0;t=55``."""
    after = headers.get("retry-after", "").strip()
    if re.fullmatch(r"\d{1,9}", after):
        return float(after)
    if after:
        from datetime import datetime, timezone
        from email.utils import parsedate_to_datetime

        try:
            when = parsedate_to_datetime(after)
            return max(0.0, (when - datetime.now(timezone.utc)).total_seconds())
        except (TypeError, ValueError):
            pass
    match = re.search(r"r\s*=\s*0\s*;\s*t\s*=\s*(\d{1,9})", headers.get("ratelimit", ""))
    return float(match[1]) if match else None
