"""What of a class no longer fits base classes in other packages, and what cannot be told."""

import sys
from collections.abc import Callable
from pathlib import Path
from textwrap import dedent, indent

import pytest
from tables import cases

from envdoctor.matrix import load_toml
from envdoctor.source import Importing, Inheriting, Library, Stop, World

CASES = cases("inheriting.toml")

TABLE = load_toml(Path(__file__).resolve().parents[2] / "fixtures" / "source" / "inheriting.toml")

BASE = """\
from functools import partial
class Trainer:
    def __init__(self, model=None, args=None): ...
    def train(self):
        loop = partial(self._loop, 1)
        return loop()
    def _loop(self, number):
        for step in range(number):
            with self.context():
                self.training_step(step)
        if self.should_log:
            self.log({}, 0)
    def training_step(self, step):
        return self.compute_loss(step, num_items_in_batch=1)
    def compute_loss(self, inputs, num_items_in_batch=None): ...
    def log(self, logs, start_time=None): ...
    def context(self): ...
    def unused(self):
        self.never(1)
    def never(self): ...
def helper(a): ...
"""

Unfit = Callable[..., list[Stop]]


@pytest.fixture
def unfit(tmp_path: Path) -> Unfit:
    """What does not fit of ``own.Tuner``, whose body is given, below ``base.Trainer``."""

    def run(body: str, *, head: str = "", base: str = BASE, bases: str = "Trainer", more: str = "") -> list[Stop]:
        (tmp_path / "base.py").write_text(base)
        (tmp_path / "own").mkdir()
        (tmp_path / "own" / "__init__.py").write_text("from .tuner import Tuner\n")
        (tmp_path / "own" / "more.py").write_text(dedent(more))
        text = (
            f"from base import Trainer, helper\n{dedent(head)}\nclass Tuner({bases}):\n{indent(dedent(body), '    ')}\n"
        )
        (tmp_path / "own" / "tuner.py").write_text(text)
        world = World(lambda name: None, {}, (3, 11, 0), "linux", frozenset(sys.stdlib_module_names), lambda top: True)
        library = Library([str(tmp_path)])
        return Inheriting(Importing(library, world)).unfit("own", "Tuner")

    return run


def said(stops: list[Stop]) -> list[str]:
    """``keyword base.Trainer tokenizer always``, ``override base.Trainer.log 2``."""
    return [
        " ".join(filter(None, [s.kind, f"{s.module}.{s.name}", s.keyword or s.text, "always" if s.always else ""]))
        for s in stops
    ]


INIT = "def __init__(self, tokenizer=None):\n    {}\n"


@pytest.mark.parametrize(("statement", "stops"), TABLE["keywords"])
def test_keywords_that_are_passed_on(unfit: Unfit, statement: str, stops: list[str]) -> None:
    assert said(unfit(INIT.format(statement))) == stops


@pytest.mark.parametrize("init", CASES["constructor_may_take"])
def test_a_constructor_that_may_take_more_refuses_nothing(unfit: Unfit, init: str) -> None:
    base = f"class Trainer:\n    {init}\ndef helper(): ..."
    assert unfit(INIT.format("super().__init__(tokenizer=1)"), base=base) == []


@pytest.mark.parametrize(("middle", "stops"), TABLE["between"])
def test_a_class_of_the_same_package_may_stand_between(unfit: Unfit, middle: str, stops: list[str]) -> None:
    more = f"from base import Trainer\nclass Middle(Trainer):\n    {middle}\n"
    body = INIT.format("super().__init__(tokenizer=1)")
    assert said(unfit(body, head="from .more import Middle", bases="Middle", more=more)) == stops


@pytest.mark.parametrize(("method", "stops"), TABLE["methods"])
def test_methods_that_the_base_class_calls_otherwise(unfit: Unfit, method: str, stops: list[str]) -> None:
    assert said(unfit(method)) == stops


@pytest.mark.parametrize(
    "body",
    [
        "if 'b' in signature(self.compute_loss).parameters:\n            self.compute_loss(1, b=1)",
        "try:\n            self.compute_loss(1, b=1)\n        except TypeError: ...",
    ],
)
def test_a_base_class_that_asks_first_calls_nothing_otherwise(unfit: Unfit, body: str) -> None:
    methods = f"    def train(self):\n        {body}\n    def compute_loss(self, a, b=1): ..."
    base = f"class Trainer:\n{methods}\ndef helper(): ..."
    assert unfit("def compute_loss(self, inputs): ...", base=base) == []


@pytest.mark.parametrize(("head", "bases"), CASES["base_classes_cannot"])
def test_base_classes_that_cannot_be_told(unfit: Unfit, head: str, bases: str) -> None:
    assert unfit("def compute_loss(self, inputs): ...", head=head, bases=bases) == []


def test_the_place_is_that_of_the_own_class(unfit: Unfit) -> None:
    first, second = unfit(
        "x = 1\n\n@torch.no_grad()\ndef compute_loss(self, inputs):\n    '''\ntext\n'''\n\n"
        "def __init__(self):\n    super().__init__(\n        y=1,\n    )"
    )
    assert (first.consumer, first.line) == ("own.tuner", 13)
    assert (second.consumer, second.line, second.parameters) == ("own.tuner", 7, ("inputs",))
