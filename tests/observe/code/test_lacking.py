"""What of a script's uses the installed files lack, read from these files."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from envdoctor.observe.code.reading.lacking import Installed

FILES = {
    "plain/__init__.py": "from .inner import Thing, make\nimport os\nVALUE = 1\n",
    "plain/inner.py": """
from dataclasses import dataclass
from base.kinds import Base

class Thing(Base):
    def step(self, x, *, hard): ...
    def run(self):
        self.step(1, hard=2)

@dataclass
class Settings:
    size: int = 0

class More(Settings):
    pass

def make(a, b=1): ...
def loose(a, **more): ...
""",
    "plain/sub/__init__.py": "",
    "plain/sub/leaf.py": "x = 1",
    "base/__init__.py": "",
    "base/kinds.py": "class Base:\n    def __init__(self, length): ...\n",
    "made/__init__.py": "def __getattr__(name): return 1\n",
    "single.py": "x = 1\n",
    "broken/__init__.py": "this is no python",
    "compiled/__init__.py": "from ._C import something\n",
    "compiled/_C.so": "",
}


@pytest.fixture
def installed(tmp_path: Path) -> Installed:
    for name, content in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(content)
    asked: dict[str, Any] = {"folders": [str(tmp_path)], "root": None}
    return Installed({**asked, "complete": True})


@pytest.mark.parametrize(
    ("module", "name", "lacks"),
    [
        ("plain", "", False),
        ("plain.sub.leaf", "", False),
        ("plain.sub.gone", "", "plain.sub.gone"),
        ("plain.gone.leaf", "", "plain.gone"),
        ("nowhere.at.all", "", "nowhere"),
        ("single", "x", False),
        ("single.x", "", "single.x"),
        ("plain", "Thing", False),
        ("plain", "Thing.whatever.it.has", False),
        ("plain", "Nothing", "plain.Nothing"),
        ("plain", "sub.leaf.x", False),
        ("plain", "sub.leaf.y", "plain.sub.leaf.y"),
        ("plain", "os.nothing", False),
        ("made", "anything", None),
        ("broken", "anything", None),
        ("compiled", "something", False),
        ("compiled._C", "something", None),
        ("compiled", "nothing", "compiled.nothing"),
    ],
)
def test_names_and_modules(installed: Installed, module: str, name: str, lacks: str | bool | None):
    assert installed.lacks("name", module, name, "", ()) == lacks


@pytest.mark.parametrize(
    ("name", "keyword", "lacks"),
    [
        ("make", "b", False),
        ("make", "c", "c"),
        ("inner.loose", "a", False),
        ("inner.loose", "c", None),
        ("Thing", "length", False),
        ("Thing", "width", "width"),
        ("inner.Settings", "size", False),
        ("inner.More", "size", False),
        ("inner.More", "sizes", "sizes"),
        ("VALUE", "x", None),
        ("Thing.step", "hard", False),
        ("Thing.step", "soft", "soft"),
    ],
)
def test_keywords(installed: Installed, name: str, keyword: str, lacks: str | bool | None):
    assert installed.lacks("keyword", "plain", name, keyword, ()) == lacks


@pytest.mark.parametrize(
    ("parameters", "lacks"), [(("x", "*", "hard"), False), (("x", "**more"), False), (("x",), "1 hard=")]
)
def test_overrides(installed: Installed, parameters: tuple[str, ...], lacks: str | bool):
    assert installed.lacks("override", "plain", "Thing.step", "", parameters) == lacks


def test_a_module_of_an_environment_that_is_not_wholly_known_is_not_missing(tmp_path: Path):
    asked = {"folders": [os.fspath(tmp_path)], "root": None}
    assert Installed({**asked, "complete": False}).lacks("module", "nowhere", "", "", ()) is None
