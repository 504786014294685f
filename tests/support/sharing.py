"""Work that many tests read the outcome of: done once in a run, however many processes share the tests."""

import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pytest

T = TypeVar("T")


def once(factory: pytest.TempPathFactory, name: str, make: Callable[[Path], T]) -> T:
    """What ``make`` gives for an empty folder; a second process that asks waits for the first and reads its result."""
    home = factory.getbasetemp()
    home = home.parent if "PYTEST_XDIST_WORKER" in os.environ else home
    path = home / f"{name}.pickle"
    with open(home / f"{name}.lock", "w") as lock:
        try:
            import fcntl

            fcntl.flock(lock, fcntl.LOCK_EX)
        except ImportError:  # Windows: each process for itself
            return make(factory.mktemp(name))
        if not path.exists():
            result = make(factory.mktemp(name))
            path.write_bytes(pickle.dumps(result))
        return pickle.loads(path.read_bytes())  # type: ignore[no-any-return]
