"""What functions and classes can be called with, read from their source."""

from __future__ import annotations

import ast

import pytest

from envdoctor.source.signatures import accepts, calls, parameters

NAMES = {
    "Base": "kit.base:Base",
    "nn": "torch:nn",
    "kit": "module kit",
    "tools": "module kit.tools",
    "Own": "class",
    "torch": "module torch",
}


def read(source: str) -> dict[str, tuple[str, ...] | None]:
    """The parameters of a module ``m``."""
    return parameters(ast.parse(source), "m", NAMES)


@pytest.mark.parametrize(
    ("source", "items"),
    [
        ("def f(a, b=1, *, c): ...", ("a", "b", "c")),
        ("async def f(a): ...", ("a",)),
        ("def f(): ...", ()),
        ("def f(a, /, b): ...", ("b",)),
        ("def f(a, *rest, **options): ...", ("*", "**", "a")),
        ("@torch.no_grad()\ndef f(a): ...", ("a",)),
        ("@surprise\ndef f(a): ...", None),
        ("@deprecate_kwarg('old', new_name='a', version='5.0')\ndef f(a): ...", ("a", "old")),
        ("@deprecated_kwargs(old='a')\ndef f(a): ...", ("a", "old")),
        ("if x:\n    def f(a): ...\nelse:\n    def f(b): ...", ("a", "b")),
        ("try:\n    def f(a): ...\nexcept E:\n    @surprise\n    def f(b): ...", None),
    ],
)
def test_functions_take_what_their_line_says(source: str, items: tuple[str, ...] | None):
    assert read(source) == {"f": items}


@pytest.mark.parametrize(
    ("source", "items"),
    [
        ("class C:\n    def __init__(self, a, **rest): ...", ("**", "a")),
        ("class C:\n    def __new__(cls, a): ...", ("a",)),
        ("class C:\n    @surprise\n    def __init__(self, a): ...", None),
        ("class C:\n    __init__ = other", None),
        ("class C: ...", ()),
        ("class C(Generic[T], abc.ABC): ...", ()),
        ("class C(Base): ...", ("&kit.base:Base",)),
        ("class C(Base[int], nn.Module): ...", ("&kit.base:Base", "&torch.nn:Module")),
        ("class C(kit.base.Base): ...", ("&kit.base:Base",)),
        ("class C(tools.Tool): ...", ("&kit.tools:Tool",)),
        ("class C(Own): ...", ("&m:Own",)),
        ("class C(make()): ...", None),
        ("class C(Elsewhere): ...", None),
        ("class C(Base, metaclass=Meta): ...", None),
        ("class C(Base, metaclass=ABCMeta): ...", ("&kit.base:Base",)),
        ("class C(str, Enum): ...", None),
        ("class C(NamedTuple):\n    a: int\n    b: int = 1", ("a", "b")),
        ("@surprise\nclass C: ...", None),
    ],
)
def test_classes_take_what_their_init_or_bases_take(source: str, items: tuple[str, ...] | None):
    assert read(source)["C"] == items


def test_a_dataclass_takes_its_fields_and_those_of_its_bases():
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
    assert read(source)["C"] == ("&kit.base:Base", "a", "b", "c")
    assert read(source.replace("@dataclasses", "@strict(accept_kwargs=True)\n@dataclasses"))["C"] == (
        *("&kit.base:Base", "**", "a", "b", "c"),
    )
    assert read(source + "    def __init__(self, other): ...")["C"] == ("other",)
    assert read(source.partition("\n@")[0] + source.partition("True)")[2])["C"] == ("&kit.base:Base",)


def test_methods_are_called_without_self():
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
    assert read(source) == {
        "C": (),
        "C.go": ("far", "fast"),
        "C.make": ("size",),
        "C.add": ("one", "other"),
        "C.many": ("a",),
    }


def test_a_class_calls_its_own_methods():
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
    assert calls(ast.parse(source), "m", NAMES) == {
        "Trainer": ("&kit.base:Base",),
        "Trainer.compute_loss": ("2", "2 num_items_in_batch="),
        "Trainer._sampler": ("1 **",),
    }


@pytest.mark.parametrize(
    ("place", "keyword", "answer"),
    [
        ("m:C", "a", True),
        ("m:C", "b", True),
        ("m:C", "z", False),
        ("m:Open", "z", True),
        ("m:Unsure", "a", True),
        ("m:Unsure", "z", None),
        ("m:Round", "z", None),
        ("m:Never", "a", None),
    ],
)
def test_a_keyword_is_looked_for_in_the_bases_too(place: str, keyword: str, answer: bool | None):
    known = {
        "m:C": ("&m:B", "a"),
        "m:B": ("b",),
        "m:Open": ("&m:B", "**"),
        "m:Unsure": ("&m:C", "&x:Y"),
        "m:Round": ("&m:Round",),
    }
    assert accepts(place, keyword, known.get) is answer
