"""What a script uses of other distributions, read from its source."""

import ast
import textwrap

import pytest

from envdoctor.source import FoundUses, TooMuch, Use, uses_of


def found(source: str, own: tuple[str, ...] = ()) -> FoundUses:
    return uses_of(ast.parse(textwrap.dedent(source)), own)


def said(source: str, own: tuple[str, ...] = ()) -> list[str]:
    """The uses as texts: kind, dotted name, keyword or parameters, ``?`` when guarded."""
    return [spelled(use) for use in found(source, own).uses]


def spelled(use: Use) -> str:
    words = [use.kind, use.dotted, *filter(None, [use.keyword, ",".join(use.parameters)])]
    return " ".join(words) + ("?" if use.guarded else "")


@pytest.mark.parametrize(
    ("source", "uses"),
    [
        ("import peft", ["module peft"]),
        ("import peft.tuners.lora as lora", ["module peft.tuners.lora"]),
        ("from trl import SFTTrainer, DPOTrainer as D", ["name trl.SFTTrainer", "name trl.DPOTrainer"]),
        ("from trl.core import *", ["module trl.core"]),
        ("def f():\n    if x:\n        from trl import SFTTrainer", ["name trl.SFTTrainer"]),
        ("import os, sys, json.decoder\nfrom collections import abc\nfrom __future__ import annotations", []),
        ("from . import a\nfrom .b import c", []),
    ],
)
def test_imports_at_any_depth(source: str, uses: list[str]):
    assert said(source) == uses


def test_imports_of_own_modules_are_no_uses():
    source = "import utils\nfrom data.loading import load\nutils.f(x=1)\nload(y=2)\nimport peft"
    assert said(source, ("utils", "data")) == ["module peft"]


@pytest.mark.parametrize(
    ("source", "uses"),
    [
        ("import numpy as np\nnp.float(1)", ["attribute numpy.float"]),
        ("import transformers\ntransformers.trainer.Trainer", ["attribute transformers.trainer.Trainer"]),
        ("import a.b.c\na.b.c.d", ["attribute a.b.c.d"]),
        ("import a.b.c as x\nx.d", ["attribute a.b.c.d"]),
        ("from torch import nn\nnn.functional.relu", ["attribute torch.nn.functional.relu"]),
        ("import np\nnp.a.b.c.d.e.f", ["attribute np.a.b.c.d"]),
        ("import np\nnp.__version__", []),
        ("import np\nnp.x = 1", []),
        ("import np\nnp.x.y = 1", ["attribute np.x"]),
        ("import np\ndef f():\n    return [np.x for _ in y]", ["attribute np.x"]),
        ("import np\nclass C:\n    np = 1\n    def f(self):\n        return np.x", ["attribute np.x"]),
        ("def f():\n    import np\n    np.x\nnp.y", ["attribute np.x"]),
        ("import np\nnp.f().g", ["attribute np.f"]),
        ("import np\nx: np.float = 1", ["attribute np.float"]),
        ("import np\ndef f(a: np.x) -> np.y: ...", ["attribute np.x", "attribute np.y"]),
        ("from __future__ import annotations\nimport np\ndef f(a: np.x) -> np.y: ...\nz: np.w = 1", []),
        ("import np\ndef f():\n    a: np.x = 1", []),
    ],
)
def test_attributes_are_read_through_aliases(source: str, uses: list[str]):
    assert [use for use in said(source) if not use.startswith("module") and "name " not in use] == uses


@pytest.mark.parametrize(
    "source",
    [
        "import datasets\ndatasets = datasets.load()\ndatasets.train",
        "import datasets\ndef f(datasets):\n    return datasets.train",
        "import datasets\n[datasets.x for datasets in y]",
        "import datasets\nf = lambda datasets: datasets.x",
        "import datasets\nwith open(x) as datasets:\n    datasets.x",
        "import datasets\ndef f():\n    datasets = 1\n    datasets.x",
        "import datasets\nfor datasets in y:\n    datasets.x",
        "import datasets\ndef f():\n    global datasets\n    datasets = 1\ndatasets.x",
        "import datasets\nif (datasets := f()):\n    datasets.x",
        "try:\n    import a as datasets\nexcept ImportError:\n    import b as datasets\ndatasets.x",
        "try:\n    import datasets\nexcept ImportError:\n    datasets = None\ndatasets.x",
        "import datasets\nmatch y:\n    case {'a': datasets}:\n        datasets.x",
        "import datasets\ndef datasets(): ...\ndatasets.x",
    ],
)
def test_a_name_that_is_bound_to_anything_else_is_no_module(source: str):
    assert not [use for use in said(source) if use.startswith("attribute") and "load" not in use]


PASSES_ON = "    def __init__(self):\n        super().__init__(a=1)"


@pytest.mark.parametrize(
    ("source", "uses"),
    [
        ("from t import T\nT(1, a=2, b=3)", ["keyword t.T a", "keyword t.T b"]),
        ("import t\nt.x.T(a=2)", ["keyword t.x.T a"]),
        ("from t import T\nT.make(a=2)", ["keyword t.T.make a"]),
        ("from t import T\nT(**options)\nT(*a)", []),
        ("from t import T\nT().f(a=1)", []),
        ("def f(T):\n    T(a=1)\nfrom t import T", []),
        ("from t import T\nclass C(T): ...\nC(a=1)", ["keyword t.T a"]),
        ("from t import T\nclass C(T):\n    b: int = 0\nC(a=1, b=2)", ["keyword t.T a"]),
        ("from t import T\nclass C(T):\n    def __init__(self, a): ...\nC(a=1)", []),
        ("from t import T, U\nclass C(T, U): ...\nC(a=1)", []),
        ("from t import T\nclass C(T):\n    def f(self):\n        super().f(a=1)", ["keyword t.T.f a"]),
        (f"from t import T\nclass C(T):\n{PASSES_ON}", ["keyword t.T a"]),
        (f"from t import T\nclass C(T):\n    def __init__(self, a): ...\nclass D(C):\n{PASSES_ON}", []),
    ],
)
def test_keywords_of_direct_calls(source: str, uses: list[str]):
    assert [use for use in said(source) if use.startswith("keyword")] == uses


@pytest.mark.parametrize(
    ("method", "uses"),
    [
        ("def f(self, a, b=1, *, c, d=2, **e): ...", ["override t.T.f a,b=,*,c,d=,**e"]),
        ("def f(self, *rest): ...", ["override t.T.f *rest"]),
        ("@staticmethod\n    def f(a): ...", ["override t.T.f a"]),
        ("@classmethod\n    def f(cls, a): ...", ["override t.T.f a"]),
        ("async def f(self): ...", ["override t.T.f"]),
        ("@property\n    def f(self): ...", []),
        ("@torch.no_grad()\n    def f(self, a): ...", ["override t.T.f a"]),
        ("@with_more_parameters\n    def f(self, a): ...", []),
        ("def __init__(self, a): ...", []),
        ("f = None", []),
    ],
)
def test_methods_that_override_those_of_an_imported_class(method: str, uses: list[str]):
    source = f"from t import T\nclass C(T):\n    {method}\n"
    assert [use for use in said(source) if use.startswith("override")] == uses


def test_a_class_of_the_file_hands_its_base_classes_on():
    source = "import t\nclass A(t.T): ...\nclass B(A):\n    def f(self): ..."
    assert "override t.T.f" in said(source)


PROVIDED = [
    "try:\n    from t import x\nexcept ImportError:\n    pass",
    "try:\n    from t import x\nexcept (KeyError, ModuleNotFoundError):\n    pass",
    "try:\n    from t import x\nexcept Exception as e:\n    print(e)",
    "try:\n    from t import x\nexcept:\n    x = None",
    "try:\n    pass\nexcept ImportError:\n    from t import x",
    "with contextlib.suppress(ImportError):\n    from t import x",
    "if is_peft_available():\n    from t import x",
    "if version.parse(t.__version__) >= version.parse('1'):\n    pass\nelse:\n    from t import x",
    "if importlib.util.find_spec('t'):\n    from t import x",
    "if TYPE_CHECKING:\n    from t import x",
    "if HAS_T:\n    from t import x",
    "def f():\n    if not is_t_available():\n        return\n    from t import x",
]
STOPPING = [
    "try:\n    from t import x\nexcept ImportError:\n    raise ImportError('install t')",
    "try:\n    from t import x\nexcept ImportError:\n    print('install t')\n    sys.exit(1)",
    "try:\n    from t import x\nexcept KeyError:\n    pass",
    "try:\n    pass\nexcept ImportError:\n    pass\nelse:\n    from t import x",
    "if torch.cuda.is_available():\n    from t import x",
    "if args.peft:\n    from t import x",
    "if __name__ == '__main__':\n    from t import x",
]


@pytest.mark.parametrize(
    ("source", "use"), [*((s, "name t.x?") for s in PROVIDED), *((s, "name t.x") for s in STOPPING)]
)
def test_what_the_script_provides_for_is_guarded(source: str, use: str):
    assert said(source) == [use]


def test_each_failure_is_caught_by_its_own_exception():
    source = """
        import t
        from t import T
        try:
            t.x
        except AttributeError:
            pass
        try:
            T(a=1)
        except TypeError:
            T(b=1)
        y = t.y if hasattr(t, "y") else t.z
        z = hasattr(t, "w") and t.w
        """
    keywords, attributes = ["keyword t.T a?", "keyword t.T b?"], ["attribute t.y?", "attribute t.z?", "attribute t.w?"]
    assert said(source)[2:] == ["attribute t.x?", *keywords, *attributes]


def test_what_the_script_puts_into_other_modules_is_told():
    source = """
        import sys, numpy as np
        np.float = float
        setattr(np, "int", int)
        sys.modules["torch._six"] = fake
        sys.modules.setdefault("apex", fake)
        """
    assert found(source).provided == {"numpy.float", "numpy.int", "torch._six", "apex"}


def test_when_a_use_is_reached():
    source = """
        import a
        if x:
            import b
        if __name__ == "__main__":
            import c
        def f():
            import d
        class C:
            import e
            def g(self):
                import h
        """
    reached = [(use.module, use.within, use.branch) for use in found(source).uses]
    within = {"d": "f", "h": "C"}
    assert reached == [(name, within.get(name, ""), name == "b") for name in "abcdeh"]


def test_who_mentions_a_function():
    mentioned = found("def f():\n    f()\ndef g():\n    pass\ng()").mentioned
    assert ("f", "") not in mentioned and ("f", "f") in mentioned and ("g", "") in mentioned
    # decorated functions and tests count as called
    mentioned = found("@app.command()\ndef f(): ...\ndef test_g(): ...").mentioned
    assert {("f", ""), ("test_g", "")} <= mentioned


def test_lines_are_those_of_the_source():
    source = "from t import (\n    S,\n    T,\n)\nT(\n    1,\n    a=2,\n)"
    assert [(use.kind, use.line) for use in found(source).uses] == [("name", 2), ("name", 3), ("keyword", 7)]


def test_too_many_uses_are_not_told():
    with pytest.raises(TooMuch):
        found("import t\n" + "t.x\n" * 30_000)


def test_deep_nesting_costs_no_recursion():
    depth = 90
    source = "import t\n" + "".join(f"{' ' * level}if x:\n" for level in range(depth)) + " " * depth + "t.y"
    assert said(source)[-1] == "attribute t.y"
    assert said("import t\nx = " + " + ".join(["t.y"] * 900))[-1] == "attribute t.y"
