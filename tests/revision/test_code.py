"""Remote code by syntax tree: what is a change, what kind it is, and what is nothing."""

from pathlib import Path

from comparing import holds, only, two_sided
from header_true import Repository
from tables import rows

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


@rows("other")
def test_comments_layout_and_docstrings_are_formatting_only(other: str) -> None:
    changed(FUNCTION, other, "formatting-only modeling.py: None -> None")


def test_the_order_of_definitions_is_formatting_only() -> None:
    one, two = "def one():\n    return 1\n", "def two():\n    return 2\n"
    assert only(compare(one + two, two + one)).detail == "definitions in another order"


@rows("old new expected")
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


@rows("old new kind")
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


@rows("body")
def test_an_override_that_does_nothing_is_a_no_op(body: str) -> None:
    switch = f"    def gradient_checkpointing_enable(self, kwargs=None):\n        {body}\n"
    kinds = {change.kind for change in compare(BASE + HOOK, BASE + switch).changes}
    assert kinds == {"gradient-checkpointing-noop", "gradient-checkpointing-hook-removed"}


@rows("body")
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


@rows("text packages")
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
