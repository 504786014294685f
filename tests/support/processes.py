"""Processes that must not outlive what started them."""

import os
import select


def gone(process: int) -> bool:
    """Whether a process, of whatever parent, has ended or ends within five seconds (Linux only)."""
    try:
        descriptor = os.pidfd_open(process)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([descriptor], [], [], 5)[0])
    finally:
        os.close(descriptor)
