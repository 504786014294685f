"""Being asked to end is an interrupt, in every command: children and scratch files go before envdoctor does."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["ended_in_order"]


@contextmanager
def ended_in_order() -> Iterator[None]:
    """SIGTERM, and SIGHUP of a closed terminal, raise KeyboardInterrupt as Ctrl-C does.

    What is ignored stays so: nohup means that a closed terminal ends nothing.
    """

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    numbers = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]
    if threading.current_thread() is not threading.main_thread():  # nobody else may listen
        numbers = []
    before = {
        number: signal.signal(number, interrupt) for number in numbers if signal.getsignal(number) != signal.SIG_IGN
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
