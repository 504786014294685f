"""What is read of releases for a file of changes: what a file defines, and what differs between releases."""

from pathlib import Path
from zipfile import ZipFile

import pytest
from harvesting.changing import lines_of, read
from harvesting.stubs import told_earlier, with_stubs

OLD = {
    "pond/__init__.py": "import os\nfrom .bank import Heron, dig\nfrom ._reeds import *\n",
    "pond/_reeds.py": "def sway(): ...\ndef _hide(): ...\n",
    "pond/bank.py": (
        "from .fish import Carp\nclass Bird:\n    def __init__(self, wings): self.wings = wings\n"
        "class Heron(Bird):\n    def wade(self, depth): ...\n    legs = 2\ndef dig(deep, wide=1): ...\n"
    ),
    "pond/fish.py": "class Carp: ...\n",
    "pond/lazy.py": "def __getattr__(name): ...\n",
    "pond/swan.py": "class Swan: ...\n",
    "pond/tests/test_bank.py": "def test(): ...\n",
}
NEW = {
    **OLD,
    "pond/__init__.py": "from .bank import Heron\nfrom ._reeds import *\n",
    "pond/bank.py": (
        "class Bird(metaclass=Kind):\n    def __init__(self, wings, beak): self.wings = wings; self.beak = beak\n"
        "class Heron(Bird):\n    def wade(self, depth=1): ...\nclass Nest(Struct):\n    eggs: int\ndef dig(deep): ...\n"
    ),
    "pond/lazy.py": "def __getattr__(name): ...\ndef swim(): ...\n",
    "pond/frog.py": "def leap(): ...\n",
    "pond/swan.py": (
        "class Swan:\n    def __init__(self): self._grow(); self.register_buffer('down', 1)\n"
        "    def _grow(self): self.neck = 1\n    def land(self): self.speed = 0\n"
    ),
}


def zipped(path: Path, files: dict[str, str]) -> Path:
    """An archive of these files."""
    with ZipFile(path, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return path


@pytest.fixture
def lines(tmp_path):
    """The lines of two releases, for modules of the depths that a function gives."""
    archives = [zipped(tmp_path / f"{number}.zip", files) for number, files in enumerate((OLD, NEW))]

    def make(depth=lambda module: 2):
        return list(lines_of(["1.0", "2.0"], [read(path, ["pond"], {"os"}, depth) for path in archives], ["pond"]))

    return make


def test_what_differs_between_releases_is_told(lines):
    offers, rest = "\n".join(lines()).split("\n[members]\n")
    assert offers.splitlines() == [
        *("[offers]", "pond\tA..A\tdig", "pond\tA..\tHeron\tsway", "pond._reeds\tA..", "pond.bank\tA..A"),
        *("pond.bank\tB..\tNest", "pond.fish\tA..", "pond.frog\tB..", "pond.lazy\tA..", "pond.swan\tA.."),
    ]
    assert rest.splitlines() == [
        *("pond.bank:Bird\tB..\tbeak", "pond.bank:Heron\tA..A\tlegs"),
        *("pond.swan:Swan\tB..\t__init__\t_grow\tdown\tland\tneck", "[parameters]"),
        *("pond.bank:Bird\tB..\tbeak\tbeak!", "pond.bank:Heron\tB..\tbeak", "pond.bank:Heron.wade\tA..A\tdepth!"),
        "pond.bank:dig\tA..A\twide",
    ]


@pytest.mark.parametrize(
    ("depth", "left"),
    [
        (1, ["pond.bank\tA..A", "pond.bank\tB..\tNest", "[members]", "[parameters]"]),
        (0, ["pond.bank\tA..", "[members]", "[parameters]"]),
        (-1, ["[members]", "[parameters]"]),
    ],
)
def test_of_modules_that_are_not_deep_less_is_told(lines, depth, left):
    found = lines(lambda module: depth if module == "pond.bank" else 2)
    assert [line for line in found if "bank" in line or "[" in line[:1]] == ["[offers]", *left]


STUBBED = {
    "pond/__init__.py": "for name in dir(_C): globals()[name] = getattr(_C, name)\ndef dig(): ...\n",
    "pond/bird.py": "class Bird(_Bird):\n    def sing(self): ...\n",
    "pond/use.py": "import pond\npond.reed\nBird.beak\nprint('pond.stone')\n",
    "pond/_C/__init__.pyi": "class _Bird:\n    wings: int\ndef wade(): ...\nstone: int\n_hidden: int\n",
}
STUBS = {"pond": ["pond._C"], "pond.bird:Bird": ["pond._C:_Bird"]}


def test_what_is_taken_over_of_compiled_modules_is_told_by_stubs_and_by_use(tmp_path):
    later = STUBBED["pond/_C/__init__.pyi"] + "reed: int\n"
    later = later.replace("wings: int", "wings: int\n    beak: int\n    tail: int")
    found, stubs = [], []
    for number, files in enumerate((STUBBED, {**STUBBED, "pond/_C/__init__.pyi": later})):
        path = zipped(tmp_path / f"{number}.zip", files)
        found.append(read(path, ["pond"], (), lambda module: 2))
        stubs.append(with_stubs(found[-1], path, STUBS))
    told_earlier(found, stubs)
    assert found[0]["offers"]["pond"] == found[1]["offers"]["pond"] == {"dig", "wade", "stone", "name", "reed"}
    assert found[0]["members"]["pond.bird:Bird"] == {"sing", "wings", "beak"}
    assert found[1]["members"]["pond.bird:Bird"] == {"sing", "wings", "beak", "tail"}
