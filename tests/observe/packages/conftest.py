"""Installed sets by what their metadata requires."""

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest

Put = Callable[[Path, Mapping[str, Sequence[str]]], None]


@pytest.fixture(scope="session")
def put() -> Put:
    """Write metadata: ``put(folder, {"a 1.0": ["b>=1", "Requires-Python: >=3.9"], "b 1.0": []})``; what is no field of
    a header is a requirement."""

    def write(folder: Path, dists: Mapping[str, Sequence[str]]) -> None:
        for dist, said in dists.items():
            name, version = dist.split()
            lines = [line if re.match("[A-Z][A-Za-z-]+: | ", line) else f"Requires-Dist: {line}" for line in said]
            info = folder / f"{re.sub('[-.]+', '_', name)}-{version}.dist-info"
            info.mkdir(parents=True)
            head = "\n".join(["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}", *lines])
            (info / "METADATA").write_text(head + "\n\nAbout it.\n")
            (info / "RECORD").write_text("")
            (info / "WHEEL").write_text("Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")

    return write
