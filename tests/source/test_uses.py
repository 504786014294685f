"""What a script uses of other distributions, read from its source."""

import ast
import textwrap
from pathlib import Path

import pytest

from envdoctor.matrix import load_toml
from envdoctor.source import FoundUses, TooMuch, Use, uses_of

TABLE = load_toml(Path(__file__).resolve().parents[2] / "fixtures" / "source" / "uses.toml")


def found(source: str, own: tuple[str, ...] = ()) -> FoundUses:
    return uses_of(ast.parse(textwrap.dedent(source)), own)


def said(source: str, own: tuple[str, ...] = ()) -> list[str]:
    """The uses as texts: kind, dotted name, keyword or parameters, ``?`` when guarded."""
    return [spelled(use) for use in found(source, own).uses]


def spelled(use: Use) -> str:
    words = [use.kind, use.dotted, *filter(None, [use.keyword, ",".join(use.parameters)])]
    return " ".join(words) + ("?" if use.guarded else "")


@pytest.mark.parametrize(("source", "uses"), TABLE["imports"])
def test_imports_at_any_depth(source: str, uses: list[str]):
    assert said(source) == uses


def test_imports_of_own_modules_are_no_uses():
    source = "import utils\nfrom data.loading import load\nutils.f(x=1)\nload(y=2)\nimport peft"
    assert said(source, ("utils", "data")) == ["module peft"]


@pytest.mark.parametrize(("source", "uses"), TABLE["attributes"])
def test_attributes_are_read_through_aliases(source: str, uses: list[str]):
    assert [use for use in said(source) if not use.startswith("module") and "name " not in use] == uses


@pytest.mark.parametrize("source", TABLE["bound"])
def test_a_name_that_is_bound_to_anything_else_is_no_module(source: str):
    assert not [use for use in said(source) if use.startswith("attribute") and "load" not in use]


@pytest.mark.parametrize(("source", "uses"), TABLE["keywords"])
def test_keywords_of_direct_calls(source: str, uses: list[str]):
    assert [use for use in said(source) if use.startswith("keyword")] == uses


@pytest.mark.parametrize(("method", "uses"), TABLE["methods"])
def test_methods_that_override_those_of_an_imported_class(method: str, uses: list[str]):
    source = f"from t import T\nclass C(T):\n    {method}\n"
    assert [use for use in said(source) if use.startswith("override")] == uses


def test_a_class_of_the_file_hands_its_base_classes_on():
    source = "import t\nclass A(t.T): ...\nclass B(A):\n    def f(self): ..."
    assert "override t.T.f" in said(source)


@pytest.mark.parametrize(("source", "use"), TABLE["guarded"])
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
