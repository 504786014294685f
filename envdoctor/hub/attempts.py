"""Trying again: which failures are worth it, and how long a server asks to wait."""

from __future__ import annotations

import re
from collections.abc import Mapping

from envdoctor.hub.transport_error import Failure

__all__ = ["Again", "asked_wait"]


class Again(Exception):
    """What went wrong may go right the next time. ``wait`` is what the server asks for, in seconds."""

    def __init__(self, message: str, kind: Failure = "protocol", wait: float | None = None, status: int = 0) -> None:
        super().__init__(message)
        self.kind = kind
        self.wait = wait
        self.status = status


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
