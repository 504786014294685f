"""Daemon threads that run calls side by side and are left behind when their time is up."""

import queue
import threading
from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

Result = TypeVar("Result")


class Late(Exception):
    """The time was up before the call came back."""


class _Batch(Generic[Result]):
    """Calls that are waited for together."""

    def __init__(self) -> None:
        self.given_up = False
        self.results: queue.SimpleQueue[tuple[int, Result | Exception]] = queue.SimpleQueue()


class Workers:
    """At most ``most`` threads, started when there is work for one more.

    A thread that hangs in a name lookup or on a server that sends a byte a minute cannot be stopped from outside, and
    the pools of the standard library wait for theirs when the interpreter ends; these do not.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._jobs: queue.SimpleQueue[tuple[_Batch[Any], int, Callable[[], Any]]] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._started = 0
        self._open = 0  # jobs given and not finished

    def run(self, calls: Sequence[Callable[[], Result]], seconds: float) -> list[Result | Exception]:
        """What each call returned or raised, in their order; :class:`Late` for what is not done after ``seconds``."""
        import time

        end = time.monotonic() + seconds
        batch: _Batch[Result] = _Batch()
        for index, call in enumerate(calls):
            with self._lock:
                self._open += 1
                if self._open > self._started and self._started < self._most:
                    self._started += 1
                    threading.Thread(target=self._work, name="envdoctor-hub", daemon=True).start()
            self._jobs.put((batch, index, call))
        found: dict[int, Result | Exception] = {}
        while len(found) < len(calls):
            try:
                index, result = batch.results.get(timeout=max(0.0, end - time.monotonic()))
            except queue.Empty:
                batch.given_up = True
                break
            found[index] = result
        return [found.get(index, Late()) for index in range(len(calls))]

    def _work(self) -> None:
        while True:
            batch, number, call = self._jobs.get()
            try:
                result = Late() if batch.given_up else call()
            except Exception as error:  # handed to the thread that waits
                result = error
            with self._lock:
                self._open -= 1
            batch.results.put((number, result))
