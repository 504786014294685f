"""What of a script's uses the installed files lack, read from these files."""

from collections.abc import Mapping
from pathlib import Path

import pytest
from observing import a_layout, one, write
from rooms import observer

from envdoctor.facts import ABSENT, Records, Value

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
OVERRIDE = "import plain\nclass Own(plain.Thing):\n    def step(self, {}): ...\n"
#: What a script says, and what of it the files lack: ABSENT for nothing, None where that cannot be told.
CASES: dict[str, Value | None] = {
    "import plain": ABSENT,
    "import plain.sub.leaf": ABSENT,
    "import plain.sub.gone": "plain.sub.gone",
    "import plain.gone.leaf": "plain.gone",
    "import nowhere.at.all": "nowhere",
    "from single import x": ABSENT,
    "import single.x": "single.x",
    "from plain import Thing": ABSENT,
    "import plain\nplain.Thing.whatever.it.has": ABSENT,
    "from plain import Nothing": "plain.Nothing",
    "import plain\nplain.sub.leaf.x": ABSENT,
    "import plain\nplain.sub.leaf.y": "plain.sub.leaf.y",
    "import plain\nplain.os.nothing": ABSENT,
    "from made import anything": None,
    "from broken import anything": None,
    "from compiled import something": ABSENT,
    "from compiled._C import something": None,
    "from compiled import nothing": "compiled.nothing",
    "import plain\nplain.make(b=1)": ABSENT,
    "import plain\nplain.make(c=1)": "c",
    "import plain.inner\nplain.inner.loose(a=1)": ABSENT,
    "import plain.inner\nplain.inner.loose(c=1)": None,
    "import plain\nplain.Thing(length=1)": ABSENT,
    "import plain\nplain.Thing(width=1)": "width",
    "import plain.inner\nplain.inner.Settings(size=1)": ABSENT,
    "import plain.inner\nplain.inner.More(size=1)": ABSENT,
    "import plain.inner\nplain.inner.More(sizes=1)": "sizes",
    "import plain\nplain.VALUE(x=1)": None,
    "import plain\nplain.Thing.step(hard=1)": ABSENT,
    "import plain\nplain.Thing.step(soft=1)": "soft",
    OVERRIDE.format("x, *, hard"): ABSENT,
    OVERRIDE.format("x, **more"): ABSENT,
    OVERRIDE.format("x"): "1 hard=",
}


def lacking(folder: Path, scripts: list[str], incomplete: str | None = None) -> list[Value | None]:
    """What each script lacks of the packages in the folder."""
    write(folder, {f"scripts/s{number}.py": script for number, script in enumerate(scripts)})
    layout = a_layout(folder, folder / "site", incomplete=incomplete)
    uses = one(observer("use"), layout, {"dist": Records(())}, code=("scripts",), cwd=str(folder)).value
    assert isinstance(uses, Records)
    found: dict[int, Value | None] = {}
    for item in uses:
        for place in item["place"]:
            number = int(place.partition(".")[0].rpartition("/s")[2])
            found[number] = item.get("lacks") if found.get(number, ABSENT) is ABSENT else found[number]
    return [found[number] for number in range(len(scripts))]


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Value | None]:
    folder = tmp_path_factory.mktemp("lacking")
    write(folder / "site", FILES)
    return dict(zip(CASES, lacking(folder, list(CASES)), strict=True))


@pytest.mark.parametrize("script", CASES)
def test_what_a_script_uses_is_there_or_lacking_or_cannot_be_told(found: Mapping[str, Value | None], script: str):
    assert found[script] == CASES[script]


def test_a_module_of_an_environment_that_is_not_wholly_known_is_not_missing(tmp_path: Path):
    assert lacking(tmp_path, ["import nowhere"]) == ["nowhere"]
    (tmp_path / "more").mkdir()
    assert lacking(tmp_path / "more", ["import nowhere"], "a folder cannot be read") == [None]
