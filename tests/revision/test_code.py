"""Remote code by syntax tree: what is a change, what kind it is, and what is nothing."""

from pathlib import Path

import pytest
from comparing import holds, only, two_sided
from header_true import Repository

from envdoctor.revision import Compared, Unread

PAIRS = Path(__file__).resolve().parents[2] / "fixtures" / "code"
FUNCTION = '''
def area(width, height, *, unit="m"):
    """How large it is."""
    size = width * height
    return format(size, unit)
'''


#: Two texts of one file, two tables of files, or two snapshots.
compare, changed = two_sided("remote_code", lambda s: {"modeling.py": s} if isinstance(s, (str, bytes)) else s)


def pair(name: str) -> Compared:
    """Compare the two sides of a pair of fixtures/code."""
    return compare(*({path.name: path.read_bytes() for path in (PAIRS / name / s).iterdir()} for s in ("old", "new")))


def test_checkpointing_that_became_a_no_op_is_named_with_class_and_method() -> None:
    holds(
        pair("checkpointing"),
        "minor-only-gate is_transformers_4_42_or_higher: None -> int(transformers.__version__.split('.')[1]) >= 42",
        "initialisation-changed TinyNorm.__init__: torch.empty -> torch.ones",
        "training-code-changed TinyEncoder.forward",
        "gradient-checkpointing-noop TinyPreTrainedModel.gradient_checkpointing_enable: "
        "None -> (self, gradient_checkpointing_kwargs=None)",
        "training-code-changed TinyModel.set_input_embeddings: None -> (self, value)",
        "training-code-changed TinyForCausalLM._update_kwargs: None -> None",
        "gradient-checkpointing-hook-removed TinyPreTrainedModel._set_gradient_checkpointing: "
        "(self, module, value=False) -> None",
    )


def test_attention_that_the_configuration_now_picks_is_seen() -> None:
    compared = pair("attention")
    attention = tuple(change for change in compared.changes if change.kind.startswith("attention"))
    holds(
        compared._replace(changes=attention),
        "attention-class-added SdpaAttention: None -> (CoreAttention)",
        "attention-class-added FlashAttention2: None -> (CoreAttention)",
        "attention-default-changed SelfAttention.__init__: "
        "CoreAttention -> CORE_ATTENTION_CLASSES, _attn_implementation",
        "attention-default-changed TinyPreTrainedModel._supports_flash_attn_2: None -> True",
        "attention-default-changed TinyPreTrainedModel._supports_sdpa: None -> True",
    )
    # flash_attn is imported under is_flash_attn_2_available()
    assert "package-required" not in {change.kind for change in compared.changes}


def test_equal_files_without_an_object_id_are_compared_by_their_bytes() -> None:
    new = Repository(texts={"modeling.py": FUNCTION}, unhashed=["modeling.py"])
    assert compare(FUNCTION, new)._replace(facts={}) == Compared(equal=("code (1 of 1 Python files)",))


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
)
def test_comments_layout_and_docstrings_are_formatting_only(other: str) -> None:
    changed(FUNCTION, other, "formatting-only modeling.py: None -> None")


def test_the_order_of_definitions_is_formatting_only() -> None:
    one, two = "def one():\n    return 1\n", "def two():\n    return 2\n"
    assert only(compare(one + two, two + one)).detail == "definitions in another order"


BASES, ONE, TWO = "class B: pass\nclass C: pass\n", "class A:\n    x = 1\n", "class B:\n    y = 1\n"
SCALE = "    def scale(self, x):\n        y = x * self.factor + self.offset\n        return y.clamp(0, 1).mean()\n"
GETTER = "class T:\n    @property\n    def eos(self): return self._eos\n"
SETTER = "    @eos.setter\n    def eos(self, value): self._eos = value\n"
NEW_CLASS = "class A:\n    x = 1\n    def f(self): return 1\n    class B:\n        def g(self): return 2\n"
BASES = "class B: pass\nclass C: pass\n"
UNDER = "try:\n    import a\nexcept ImportError:\n    def f(): return 1\n"


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("x = 1", "x = 2", "definition-changed x: 1 -> 2"),
        ("x = 1\ny = 2", "x = 1", "definition-removed y: 2 -> None"),
        ("class A: x = 1", "class A: x = 2", "training-code-changed A.x: 1 -> 2"),
        (f"{BASES}class A(B): pass", f"{BASES}class A(C): pass", "training-code-changed A: (B) -> (C)"),
        ("def f(): pass", "@cache\ndef f(): pass", "training-code-changed f"),
        ("def f(a: int): pass", "def f(a: str): pass", "formatting-only modeling.py"),
        ("def f(): return len(1)", "def f(): return str(1)", "training-code-changed f"),
        ("f()", "f()\ng()", "training-code-changed module level: None -> g()"),
        ("class A: pass", "class A:\n    def f(self): pass", "training-code-changed A.f: None -> (self)"),
        ("x = 1", "def x(): pass", "training-code-changed x: value -> function"),
        ("import os", "import os\nimport os.path", "import-added os.path: None -> os.path"),
        ("from .a import b, c", "from .a import b", "import-removed .a.c: .a.c -> None"),
        (FUNCTION, FUNCTION + NEW_CLASS, "definition-added A: None -> ()"),  # it stands for its methods
        (GETTER, GETTER + SETTER, "training-code-changed T.eos.setter: None -> (self, value)"),
        (UNDER, UNDER.replace("return 1", "return 2"), "training-code-changed f"),
        (f"{ONE}{SCALE}{TWO}", f"{ONE}{TWO}{SCALE}", "definition-moved B.scale: A.scale -> B.scale"),
    ],
)
def test_definitions_that_came_went_moved_or_changed(old: str, new: str, expected: str) -> None:
    changed(old, new, expected)


def test_files_that_came_went_or_moved() -> None:
    rest = "def rest(): return 0\n"
    moved = compare({"a.py": rest + FUNCTION, "b.py": rest}, {"a.py": rest, "b.py": rest + FUNCTION})
    assert [(change.kind, change.path, change.before) for change in moved.changes] == [
        ("formatting-only", "a.py", None),
        ("definition-moved", "b.py", "a.py: area"),
    ]
    file_moved = "file-moved new_name.py: old_name.py -> new_name.py"
    changed(
        {"old_name.py": FUNCTION + "x = 1"}, {"new_name.py": FUNCTION + "x = 2"}, file_moved, "definition-changed x"
    )
    changes = compare({"a.py": "x = 1"}, {"b.py": FUNCTION}).changes
    assert [(change.kind, change.path) for change in changes] == [("file-removed", "a.py"), ("file-added", "b.py")]


def test_a_long_list_of_changes_is_summed_up() -> None:
    new = "\n".join(f"x{index} = {index}" for index in range(1000))
    changes = compare("y = 1", "y = 1\n" + new).changes
    assert len(changes) == 101
    assert (changes[-1].symbol, changes[-1].count) == ("900 more", 900)


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
def test_signatures_by_what_they_do_to_callers(old: str, new: str, kind: str) -> None:
    sides = (f"class M:\n    def forward{parameters}: return 1" for parameters in (old, new))
    changed(*sides, f"{kind} M.forward")


def test_other_values_at_the_start_matter_only_in_initialisers() -> None:
    changed("def f(): return torch.empty(1)", "def f(): return torch.ones(1)", "training-code-changed")
    old = "class M:\n    def _init_weights(self, m): m.weight.data.normal_(0, 1)"
    values = "m.weight.data.normal_ -> m.weight.data.uniform_"
    changed(old, old.replace("normal_", "uniform_"), f"initialisation-changed M._init_weights: {values}")


HOOK = "    def _set_gradient_checkpointing(self, module, value=False):\n        module.flag = value\n"
BASE = "class Base(PreTrainedModel):\n    kept = 1\n"
FLAG = "    supports_gradient_checkpointing = True\n"


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
def test_an_override_that_does_nothing_is_a_no_op(body: str) -> None:
    switch = f"    def gradient_checkpointing_enable(self, kwargs=None):\n        {body}\n"
    kinds = {change.kind for change in compare(BASE + HOOK, BASE + switch).changes}
    assert kinds == {"gradient-checkpointing-noop", "gradient-checkpointing-hook-removed"}


@pytest.mark.parametrize(
    "body",
    [
        "super().gradient_checkpointing_enable(kwargs)",
        "self.encoder.gradient_checkpointing = True",
        "self.apply(self._set_gradient_checkpointing)",
        "setattr(self.encoder, 'gradient_checkpointing', True)",
        "raise NotImplementedError('not here')",
        "self.flags['x'] = True",
    ],
)
def test_an_override_that_does_something_is_none(body: str) -> None:
    switch = f"    def gradient_checkpointing_enable(self, kwargs=None):\n        {body}\n"
    added = "training-code-changed Base.gradient_checkpointing_enable: None -> (self, kwargs=None)"
    changed(BASE + HOOK, BASE + HOOK + switch, added)


def test_only_what_became_a_no_op_is_a_change() -> None:
    switch = "    def gradient_checkpointing_enable(self): pass\n"
    changed(BASE + switch, BASE + switch + "x = 1", "definition-added x: None -> 1")
    emptied = "gradient-checkpointing-noop Base._set_gradient_checkpointing"
    changed(BASE + HOOK, BASE + HOOK.replace("module.flag = value", "pass"), emptied)


def test_the_flag_that_transformers_asks_for_has_its_own_kind() -> None:
    for new in (BASE + FLAG.replace("True", "False"), BASE):
        changed(BASE + FLAG, new, "gradient-checkpointing-flag-changed")
    # a base class may give it now
    for new in (
        "class Base(LlamaPreTrainedModel):\n    pass\n",
        f"class Root(PreTrainedModel):\n{FLAG}class Base(Root): ...\n",
    ):
        found = compare(f"class Base(PreTrainedModel):\n{FLAG}", new).changes
        assert "gradient-checkpointing-flag-changed" not in {change.kind for change in found}


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
def test_packages_that_transformers_looks_for_before_it_loads_the_file(text: str, packages: list[str]) -> None:
    compared = compare("import torch", f"import torch\n{text}")
    assert [change.symbol for change in compared.changes if change.kind == "package-required"] == packages


def test_a_file_that_cannot_be_parsed_or_fetched_is_unread_and_never_unchanged() -> None:
    compared = compare({"a.py": "x = 1", "b.py": "y = 1"}, {"a.py": "x = = 1", "b.py": "y = 2"})
    assert compared.unread == (Unread("a.py", "it is not Python that this interpreter can parse (line 1)"),)
    kinds = [(change.kind, change.path) for change in compared.changes]
    assert kinds == [("code-broken", "a.py"), ("definition-changed", "b.py")]
    silent = {"modeling.py": "the server did not answer"}
    compared = compare("x = 1", Repository(texts={"modeling.py": "x = 2"}, broken=silent))
    assert compared._replace(facts={}) == Compared(unread=(Unread("modeling.py", "the server did not answer"),))
