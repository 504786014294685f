"""Remote code by syntax tree: what is a change, what kind it is, and what is nothing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from comparing import outcome
from rooms import comparer

from envdoctor.hub import Unread
from envdoctor.revision import Change, Compared

remote_code = comparer("remote_code")

PAIRS = Path(__file__).resolve().parents[2] / "fixtures" / "code"
FUNCTION = '''
def area(width, height, *, unit="m"):
    """How large it is."""
    size = width * height
    return format(size, unit)
'''


@pytest.fixture
def compare(snapshot: Callable[..., Any]) -> Callable[..., Compared]:
    """``compare("x = 1", "x = 2")`` for one file, or two tables of files."""

    def run(old: Any, new: Any, **more: Any) -> Compared:
        old, new = ({"modeling.py": side} if isinstance(side, (str, bytes)) else side for side in (old, new))
        return outcome(remote_code, snapshot(old), snapshot(new, **more))

    return run


@pytest.fixture
def compare_pair(compare: Callable[..., Compared]) -> Callable[[str], Compared]:
    def run(name: str) -> Compared:
        sides = [{path.name: path.read_bytes() for path in (PAIRS / name / side).iterdir()} for side in ("old", "new")]
        return compare(*sides)

    return run


def rows(compared: Compared) -> list[tuple[str, str, str | None, str | None]]:
    assert compared.unread == ()
    return [(change.kind, change.symbol, change.before, change.after) for change in compared.changes]


def only(compared: Compared) -> Change:
    assert compared.unread == ()
    assert len(compared.changes) == 1, compared.changes
    return compared.changes[0]


# --- the stories ------------------------------------------------------------------------------------------------------


def test_checkpointing_that_became_a_no_op_is_named_with_class_and_method(
    compare_pair: Callable[[str], Compared],
) -> None:
    assert rows(compare_pair("checkpointing")) == [
        (
            "minor-only-gate",
            "is_transformers_4_42_or_higher",
            None,
            "int(transformers.__version__.split('.')[1]) >= 42",
        ),
        ("initialisation-changed", "TinyNorm.__init__", "torch.empty", "torch.ones"),
        (
            "call-keyword-changed",
            "TinyEncoder.forward",
            None,
            "torch.utils.checkpoint.checkpoint(use_reentrant=False)",
        ),
        (
            "gradient-checkpointing-noop",
            "TinyPreTrainedModel.gradient_checkpointing_enable",
            None,
            "(self, gradient_checkpointing_kwargs=None)",
        ),
        ("definition-added", "TinyModel.set_input_embeddings", None, "(self, value)"),
        ("definition-changed", "TinyForCausalLM._update_kwargs", None, None),
        (
            "gradient-checkpointing-hook-removed",
            "TinyPreTrainedModel._set_gradient_checkpointing",
            "(self, module, value=False)",
            None,
        ),
    ]


def test_attention_that_the_configuration_now_picks_is_seen(compare_pair: Callable[[str], Compared]) -> None:
    found = rows(compare_pair("attention"))
    assert [row for row in found if row[0].startswith("attention")] == [
        ("attention-class-added", "SdpaAttention", None, "(CoreAttention)"),
        ("attention-class-added", "FlashAttention2", None, "(CoreAttention)"),
        (
            "attention-default-changed",
            "SelfAttention.__init__",
            "CoreAttention",
            "CORE_ATTENTION_CLASSES[config._attn_implementation]",
        ),
        ("attention-default-changed", "TinyPreTrainedModel._supports_flash_attn_2", None, "True"),
        ("attention-default-changed", "TinyPreTrainedModel._supports_sdpa", None, "True"),
    ]
    assert not [row for row in found if row[0] == "package-required"], (
        "flash_attn is imported under is_flash_attn_2_available()"
    )


# --- what is nothing --------------------------------------------------------------------------------------------------


def test_equal_files_are_not_read(snapshot: Callable[..., Any]) -> None:
    old, new = snapshot({"modeling.py": FUNCTION}), snapshot({"modeling.py": FUNCTION})
    assert outcome(remote_code, old, new) == Compared(equal=("code (1 of 1 Python files)",))
    assert old.reads == new.reads == []


def test_equal_files_without_an_object_id_are_compared_by_their_bytes(snapshot: Callable[..., Any]) -> None:
    old, new = snapshot({"modeling.py": FUNCTION}), snapshot({"modeling.py": FUNCTION}, unhashed=["modeling.py"])
    assert outcome(remote_code, old, new) == Compared(equal=("code (1 of 1 Python files)",))


@pytest.mark.parametrize(
    "other",
    [
        FUNCTION.replace("How large it is.", "Its size."),
        FUNCTION.replace("    size", "    # multiply\n    size"),
        FUNCTION.replace("width * height", "(width  *  height)"),
        FUNCTION.replace("    return", "    pass\n    return"),
        "\n\n" + FUNCTION.replace("\n", "\r\n"),
        "# -*- coding: latin-1 -*-\n" + FUNCTION,
    ],
    ids=["docstring", "comment", "layout", "pass", "line ends", "coding"],
)
def test_comments_layout_and_docstrings_are_formatting_only(compare: Callable[..., Compared], other: str) -> None:
    assert rows(compare(FUNCTION, other)) == [("formatting-only", "modeling.py", None, None)]


def test_the_order_of_definitions_is_formatting_only(compare: Callable[..., Compared]) -> None:
    one, two = "def one():\n    return 1\n", "def two():\n    return 2\n"
    assert only(compare(one + two, two + one)).detail == "definitions in another order"


# --- definitions ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("x = 1", "x = 2", ("definition-changed", "x", "1", "2")),
        ("x = 1\ny = 2", "x = 1", ("definition-removed", "y", "2", None)),
        ("class A: x = 1", "class A: x = 2", ("definition-changed", "A.x", "1", "2")),
        ("class A(B): pass", "class A(C): pass", ("definition-changed", "A", "(B)", "(C)")),
        ("def f(): pass", "@cache\ndef f(): pass", ("definition-changed", "f", None, "cache")),
        ("def f(a: int): pass", "def f(a: str): pass", ("definition-changed", "f", None, None)),
        ("def f(): return a(1)", "def f(): return b(1)", ("definition-changed", "f", "a", "b")),
        ("f()", "f()\ng()", ("definition-changed", "module level", None, "g()")),
        ("class A: pass", "class A:\n    def f(self): pass", ("definition-added", "A.f", None, "(self)")),
        ("x = 1", "def x(): pass", ("definition-changed", "x", "value", "function")),
        ("import os", "import os\nimport os.path", ("import-added", "os.path", None, "os.path")),
        ("from .a import b, c", "from .a import b", ("import-removed", ".a.c", ".a.c", None)),
    ],
)
def test_definitions_that_came_went_or_changed(
    compare: Callable[..., Compared], old: str, new: str, expected: tuple[str, str, str | None, str | None]
) -> None:
    assert rows(compare(old, new)) == [expected]


def test_a_new_class_stands_for_its_methods(compare: Callable[..., Compared]) -> None:
    new = FUNCTION + "class A:\n    x = 1\n    def f(self): return 1\n    class B:\n        def g(self): return 2\n"
    assert rows(compare(FUNCTION, new)) == [("definition-added", "A", None, "()")]


def test_a_setter_is_not_its_getter(compare: Callable[..., Compared]) -> None:
    getter = "class T:\n    @property\n    def eos(self): return self._eos\n"
    setter = "    @eos.setter\n    def eos(self, value): self._eos = value\n"
    assert rows(compare(getter, getter + setter)) == [("definition-added", "T.eos.setter", None, "(self, value)")]


def test_definitions_under_conditions_are_found(compare: Callable[..., Compared]) -> None:
    old = "try:\n    import a\nexcept ImportError:\n    def f(): return 1\n"
    change = only(compare(old, old.replace("return 1", "return 2")))
    assert (change.kind, change.symbol) == ("definition-changed", "f")


def test_a_method_that_moved_to_another_class_is_one_change(compare: Callable[..., Compared]) -> None:
    body = "    def scale(self, x):\n        y = x * self.factor + self.offset\n        return y.clamp(0, 1).mean()\n"
    change = only(
        compare(
            f"class A:\n    x = 1\n{body}class B:\n    y = 1\n", f"class A:\n    x = 1\nclass B:\n    y = 1\n{body}"
        )
    )
    assert (change.kind, change.before, change.after) == ("definition-moved", "A.scale", "B.scale")


def test_a_function_that_moved_to_another_file_is_one_change(compare: Callable[..., Compared]) -> None:
    rest = "def rest(): return 0\n"
    moved = compare({"a.py": rest + FUNCTION, "b.py": rest}, {"a.py": rest, "b.py": rest + FUNCTION})
    assert [(change.kind, change.path, change.before) for change in moved.changes] == [
        ("formatting-only", "a.py", None),
        ("definition-moved", "b.py", "a.py: area"),
    ]


def test_a_renamed_file_is_compared_with_what_it_was(compare: Callable[..., Compared]) -> None:
    renamed = compare({"old_name.py": FUNCTION + "x = 1"}, {"new_name.py": FUNCTION + "x = 2"})
    assert rows(renamed) == [
        ("file-moved", "new_name.py", "old_name.py", "new_name.py"),
        ("definition-changed", "x", "1", "2"),
    ]


def test_files_that_came_and_went(compare: Callable[..., Compared]) -> None:
    compared = compare({"a.py": "x = 1"}, {"b.py": FUNCTION})
    assert [(change.kind, change.path) for change in compared.changes] == [
        ("file-removed", "a.py"),
        ("file-added", "b.py"),
    ]


def test_a_long_list_of_changes_is_summed_up(compare: Callable[..., Compared]) -> None:
    new = "\n".join(f"x{index} = {index}" for index in range(1000))
    changes = compare("y = 1", "y = 1\n" + new).changes
    assert len(changes) == 101
    assert (changes[-1].symbol, changes[-1].count) == ("900 more", 900)


# --- functions --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("old", "new", "kind"),
    [
        ("(self, x)", "(self, x, padding_side=None)", "signature-extended"),
        ("(self, x)", "(self, x, **kwargs)", "signature-extended"),
        ("(self, x)", "(self, x, *, y=1)", "signature-extended"),
        ("(self, x)", "(self, x, y)", "signature-changed"),
        ("(self, x, y)", "(self, x)", "signature-changed"),
        ("(self, x, y=1)", "(self, x, z=1)", "signature-changed"),
        ("(self, x, y)", "(self, y, x)", "signature-changed"),
        ("(self, x=1, y=2)", "(self, z=0, x=1, y=2)", "signature-changed"),
        ("(self, x=1)", "(self, x)", "signature-changed"),
        ("(self, x=1)", "(self, *, x=1)", "signature-changed"),
        ("(self, x, *rest)", "(self, x, y=1, *rest)", "signature-changed"),
        ("(self, x=1)", "(self, x=2)", "default-changed"),
        ("(self, attn_implementation='sdpa')", "(self, attn_implementation='eager')", "attention-default-changed"),
        ("(self, use_flash_attn=True)", "(self, use_flash_attn=False)", "attention-default-changed"),
    ],
)
def test_signatures_by_what_they_do_to_callers(compare: Callable[..., Compared], old: str, new: str, kind: str) -> None:
    change = only(compare(f"class M:\n    def forward{old}: return 1", f"class M:\n    def forward{new}: return 1"))
    assert (change.kind, change.symbol) == (kind, "M.forward")


def test_a_body_that_changed_more_than_keywords_is_reported_as_well(compare: Callable[..., Compared]) -> None:
    compared = compare("def f(x): return g(x, k=1)", "def f(x): return g(x, k=2) + h(x)")
    assert rows(compared) == [
        ("call-keyword-changed", "f", "g(k=1)", "g(k=2)"),
        ("definition-changed", "f", None, "h"),
    ]


def test_other_values_at_the_start_matter_only_in_initialisers(compare: Callable[..., Compared]) -> None:
    assert only(compare("def f(): return torch.empty(1)", "def f(): return torch.ones(1)")).kind == "definition-changed"
    old = "class M:\n    def _init_weights(self, m): m.weight.data.normal_(0, 1)"
    change = only(compare(old, old.replace("normal_", "uniform_")))
    assert (change.kind, change.before, change.after) == (
        "initialisation-changed",
        "m.weight.data.normal_",
        "m.weight.data.uniform_",
    )


# --- gradient checkpointing -------------------------------------------------------------------------------------------

HOOK = "    def _set_gradient_checkpointing(self, module, value=False):\n        module.flag = value\n"
BASE = "class Base(PreTrainedModel):\n    kept = 1\n"


@pytest.mark.parametrize(
    "body",
    [
        "pass",
        "return",
        "'''Nothing.'''",
        "if not self.flag: raise ValueError(f'{type(self)} cannot')",
        "kwargs = kwargs or {}",
        "logger.warning('ignored')",
        "if hasattr(self, 'x') and isinstance(self.x, dict): return None",
    ],
)
def test_an_override_that_does_nothing_is_a_no_op(compare: Callable[..., Compared], body: str) -> None:
    switch = f"    def gradient_checkpointing_enable(self, kwargs=None):\n        {body}\n"
    assert {row[0] for row in rows(compare(BASE + HOOK, BASE + switch))} == {
        "gradient-checkpointing-noop",
        "gradient-checkpointing-hook-removed",
    }


@pytest.mark.parametrize(
    "body",
    [
        "super().gradient_checkpointing_enable(kwargs)",
        "self.encoder.gradient_checkpointing = True",
        "self.apply(partial(self._set_gradient_checkpointing, value=True))",
        "setattr(self.encoder, 'gradient_checkpointing', True)",
        "raise NotImplementedError('not here')",
        "self.flags['x'] = True",
    ],
)
def test_an_override_that_does_something_is_none(compare: Callable[..., Compared], body: str) -> None:
    switch = f"    def gradient_checkpointing_enable(self, kwargs=None):\n        {body}\n"
    assert rows(compare(BASE + HOOK, BASE + HOOK + switch)) == [
        ("definition-added", "Base.gradient_checkpointing_enable", None, "(self, kwargs=None)")
    ]


def test_an_override_that_was_a_no_op_before_is_no_change(compare: Callable[..., Compared]) -> None:
    switch = "    def gradient_checkpointing_enable(self): pass\n"
    assert rows(compare(BASE + switch, BASE + switch + "x = 1")) == [("definition-added", "x", None, "1")]


def test_a_switch_whose_body_was_emptied_is_a_no_op(compare: Callable[..., Compared]) -> None:
    change = only(compare(BASE + HOOK, BASE + HOOK.replace("module.flag = value", "pass")))
    assert (change.kind, change.symbol) == ("gradient-checkpointing-noop", "Base._set_gradient_checkpointing")


def test_the_flag_that_transformers_asks_for_has_its_own_kind(compare: Callable[..., Compared]) -> None:
    old = BASE + "    supports_gradient_checkpointing = True\n"
    assert only(compare(old, old.replace("True", "False"))).kind == "gradient-checkpointing-flag-changed"
    assert only(compare(old, BASE)).kind == "gradient-checkpointing-flag-changed"


def test_a_flag_that_a_base_may_give_now_is_not_called_gone(compare: Callable[..., Compared]) -> None:
    flag = "    supports_gradient_checkpointing = True\n"
    old = "class Base(PreTrainedModel):\n" + flag
    for new in (
        "class Base(LlamaPreTrainedModel):\n    pass\n",
        "class Root(PreTrainedModel):\n" + flag + "class Base(Root):\n    pass\n",
    ):
        assert "gradient-checkpointing-flag-changed" not in {row[0] for row in rows(compare(old, new))}


# --- packages, unread parts, cost -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "packages"),
    [
        ("import os\nfrom einops import rearrange", ["einops"]),
        ("def f():\n    import tiktoken", ["tiktoken"]),
        ("if new:\n    import einops", ["einops"]),
        ("try:\n    import xformers\nexcept ImportError:\n    xformers = None", []),
        ("if is_flash_attn_2_available():\n    import flash_attn", []),
        ("from .einops import rearrange", []),
        ("import transformers, numpy.linalg", []),
    ],
)
def test_packages_that_transformers_looks_for_before_it_loads_the_file(
    compare: Callable[..., Compared], text: str, packages: list[str]
) -> None:
    compared = compare("import torch", f"import torch\n{text}")
    assert [change.symbol for change in compared.changes if change.kind == "package-required"] == packages


def test_a_file_that_cannot_be_parsed_is_unread_and_never_unchanged(compare: Callable[..., Compared]) -> None:
    compared = compare({"a.py": "x = 1", "b.py": "y = 1"}, {"a.py": "x = = 1", "b.py": "y = 2"})
    assert compared.unread == (Unread("a.py", "it is not Python that this interpreter can parse (line 1)"),)
    assert [(change.kind, change.path) for change in compared.changes] == [
        ("unparsable", "a.py"),
        ("definition-changed", "b.py"),
    ]


def test_a_file_that_cannot_be_fetched_is_unread(compare: Callable[..., Compared]) -> None:
    compared = compare("x = 1", "x = 2", broken={"modeling.py": "the server did not answer"})
    assert compared == Compared(unread=(Unread("modeling.py", "the server did not answer"),))
