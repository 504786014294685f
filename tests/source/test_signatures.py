"""What functions and classes can be called with, read from their source; and whether a base class can call a method."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tables import cases

from envdoctor.matrix import load_toml
from envdoctor.source import Library, Names, World, can_be_called

CASES = cases("signatures.toml")

TABLE = load_toml(Path(__file__).resolve().parents[2] / "fixtures" / "source" / "signatures.toml")

HEAD = "import kit, torch\nimport kit.tools as tools\nfrom kit.base import Base\nfrom torch import nn\n"

Read = Callable[[str], Library]


@pytest.fixture
def read(tmp_path: Path) -> Read:
    """A library with one module ``m``."""

    def run(source: str) -> Library:
        (tmp_path / "m.py").write_text(HEAD + source)
        return Library([str(tmp_path)])

    return run


def told(known: Library, place: str) -> list[str] | str:
    """What can be passed there, as the table has it."""
    items = known.parameters(place)
    return "none" if items is None else list(items)


@pytest.mark.parametrize(("source", "items"), TABLE["functions"])
def test_functions_take_what_their_line_says(read: Read, source: str, items: list[str] | str):
    assert told(read(source), "m:f") == items


@pytest.mark.parametrize(("source", "items"), TABLE["classes"])
def test_classes_take_what_their_init_or_bases_take(read: Read, source: str, items: list[str] | str):
    assert told(read(source), "m:C") == items


def test_a_dataclass_takes_its_fields_and_those_of_its_bases(read: Read):
    source = """
@dataclasses.dataclass(frozen=True)
class C(Base):
    a: int
    b: str = field(default="x", metadata={"help": "init=False"})
    hidden: int = field(init=False)
    shared: ClassVar[int] = 1
    _: KW_ONLY
    plain = 3
    c: int = 0
"""
    bare = source.partition("\n@")[0] + source.partition("True)")[2]
    strict = source.replace("@dataclasses", "@strict(accept_kwargs=True)\n@dataclasses")
    for text, items in (
        (source, ("&kit.base:Base", "a", "b", "c")),
        (strict, ("&kit.base:Base", "**", "a", "b", "c")),
        (source + "    def __init__(self, other): ...", ("other",)),
        (bare, ("&kit.base:Base",)),
    ):
        assert read(text).parameters("m:C") == items


def test_methods_are_called_without_self(read: Read):
    source = """
class C:
    def go(self, far, *, fast=False): ...
    @classmethod
    def make(cls, size): ...
    @staticmethod
    def add(one, other): ...
    @property
    def width(self): ...
    @overload
    def many(self, a: int): ...
    @overload
    def many(self, b: str): ...
    def many(self, a): ...
"""
    known, names = read(source), ("go", "make", "add", "many", "width")
    takes = [known.parameters(f"m:C.{name}") for name in names]
    assert takes == [("far", "fast"), ("size",), ("one", "other"), ("a",), None]


def test_a_class_calls_its_own_methods(read: Read):
    source = """
class Trainer(Base):
    def compute_loss(self, model, inputs, num_items_in_batch=None): ...
    def _sampler(self, dataset): ...
    def _old(self, value): ...
    @property
    def width(self): ...
    def train(self, *rest, **options):
        loss = self.compute_loss(self.model, [i for i in inputs], num_items_in_batch=3)
        if old:
            loss = self.compute_loss(model, inputs)
        self._sampler(*rest)
        self._sampler(dataset, **options)
        if "value" in inspect.signature(self._old).parameters:
            self._old(value=1)
        else:
            self._old(enable=1)
        self.width(1)
        self.elsewhere(1)
        other.compute_loss()
"""
    assert read(source).calls("m") == {
        "Trainer": ("&kit.base:Base",),
        "Trainer.compute_loss": ("2", "2 num_items_in_batch="),
        "Trainer._sampler": ("1 **",),
    }


@pytest.mark.parametrize(("place", "keyword", "answer"), CASES["keyword_looked_for"])
def test_a_keyword_is_looked_for_in_the_bases_too(read: Read, place: str, keyword: str, answer: bool | None):
    source = """
@dataclass
class B:
    b: int
@dataclass
class C(B):
    a: int
class Open(B):
    def __init__(self, **k): ...
class Unsure(C, Base): ...
class Round(Round): ...
"""
    world = World(lambda name: None, {}, (3, 11, 0), "linux", frozenset(sys.stdlib_module_names), lambda top: True)
    assert Names(read(source), world).takes(place, keyword) is answer


@pytest.mark.parametrize(("parameters", "call", "fits"), TABLE["calls"])
def test_calls(parameters: str, call: str, fits: bool):
    assert can_be_called(parameters.split(), call) is fits
