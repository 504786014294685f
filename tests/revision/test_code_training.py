"""What changed on the path of a training step: told by its cause where that is known, else as changed, not judged."""

from pathlib import Path
from typing import NamedTuple

import pytest
from comparing import holds, outcome
from rooms import comparer
from tables import rows

from envdoctor.matrix import load_toml
from envdoctor.revision import Change

remote_code = comparer("remote_code")

FAMILIES = Path(__file__).resolve().parents[2] / "fixtures" / "code" / "families"
#: Kinds that no rule warns of.
QUIET = {"formatting-only", "definition-added", "definition-changed", "default-unused"}


class Planted(NamedTuple):
    """In a family's file ``old`` is written as ``new``, once or everywhere."""

    family: str
    old: str
    new: str
    kind: str = ""
    everywhere: bool = False


PLANTED = load_toml(FAMILIES / "planted.toml")
FAULTS, HARMLESS = ([Planted(**row) for row in PLANTED[part]] for part in ("fault", "harmless"))


def changes(planted: Planted, *, back: bool = False) -> list[Change]:
    """What is said of the change, or of the way back; everything was read."""
    file = f"modeling_{planted.family}.py"
    text = (FAMILIES / file).read_text(encoding="utf-8")
    assert planted.old in text
    sides = [{file: text}, {file: text.replace(planted.old, planted.new, -1 if planted.everywhere else 1)}]
    compared = outcome(remote_code, *(reversed(sides) if back else sides))
    assert compared.unread == ()
    return [change for change in compared.changes if change.kind not in QUIET]


def name(planted: Planted) -> str:
    return f"{planted.family}: {planted.new[:40]!r}"


@pytest.mark.parametrize("planted", FAULTS, ids=name)
def test_a_planted_fault_is_said_with_its_cause_and_its_lines(planted: Planted) -> None:
    found = changes(planted)
    assert planted.kind in {change.kind for change in found}
    (change, *_) = [change for change in found if change.kind == planted.kind]
    assert change.hunk[0].startswith("@@")
    assert any(line[0] in "+-" for line in change.hunk)
    assert len(found) <= 3


@pytest.mark.parametrize("planted", FAULTS, ids=name)
def test_the_way_back_is_said_as_well(planted: Planted) -> None:
    back = changes(planted, back=True)
    assert back
    if planted.kind.startswith("gradient-checkpointing"):
        assert "gradient-checkpointing-mended" in {change.kind for change in back}
    else:
        assert planted.kind in {change.kind for change in back}


@pytest.mark.parametrize("planted", HARMLESS, ids=name)
def test_a_harmless_change_is_no_fault(planted: Planted) -> None:
    assert [change.kind for change in changes(planted)] == ([planted.kind] if planted.kind else [])


#: A snippet has its names from elsewhere.
ELSEWHERE = "from elsewhere import *\n"
FORWARD = f"{ELSEWHERE}class M:\n    def forward(self, x, other, labels=None):\n"


def compare(old: str, new: str, *expected: str) -> None:
    """Compare two bodies of a forward."""
    sides = ("".join(f"        {line}\n" for line in body.split("\n")) for body in (old, new))
    holds(outcome(remote_code, *({"modeling.py": FORWARD + side} for side in sides)), *expected)


SAME, OTHER = "formatting-only", "training-code-changed M.forward"


@rows("old new kind")
def test_what_is_erased_and_what_is_not(old: str, new: str, kind: str) -> None:
    compare(old, new, f"{kind} modeling.py" if kind == SAME else kind)


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (("@add_start_docstrings('A')", ""), ("@add_start_docstrings('B')", ""), f"{SAME} modeling.py"),
        (("", ""), ("", "@torch.no_grad()"), "gradient-stop-changed M.forward"),
    ],
)
def test_decorators_that_document_are_erased(old: tuple[str, str], new: tuple[str, str], expected: str) -> None:
    sides = (f"{above}\nclass M:\n    {inside}\n    def forward(self, x): return x\n" for above, inside in (old, new))
    holds(outcome(remote_code, *({"modeling.py": side} for side in sides)), expected)


MODEL = """
class M:
    def forward(self, x):
        return self.helper(x)
    def helper(self, x):
        return shared(x)
    def chat(self, x):
        return only_chat(x) + shared(x)
def shared(x):
    return x + 1
def only_chat(x):
    return x + 2
class TopLogitsProcessor(LogitsProcessor):
    def __call__(self, ids, scores):
        return scores * 3
"""


@rows("old new expected")
def test_what_a_step_cannot_reach_is_listed_and_not_judged(old: str, new: str, expected: str) -> None:
    compared = outcome(remote_code, {"modeling.py": MODEL}, {"modeling.py": MODEL.replace(old, new)})
    holds(compared, expected)
    assert compared.changes[0].hunk


def test_no_gradient_flows_through_the_making_of_a_mask() -> None:
    old = MODEL.replace("helper", "_update_causal_mask")
    new = old.replace("    def _update", "    @torch.no_grad()\n    def _update")
    holds(
        outcome(remote_code, {"modeling.py": old}, {"modeling.py": new}), "training-code-changed M._update_causal_mask"
    )


def test_chat_that_a_forward_calls_is_on_the_path() -> None:
    called = MODEL.replace("return self.helper(x)", "return self.chat(x)")
    compared = outcome(remote_code, {"modeling.py": called}, {"modeling.py": called.replace("x + 2", "x - 2")})
    holds(compared, "value-replaced only_chat")


def test_what_only_moved_to_another_function_is_no_loss() -> None:
    head = f"{ELSEWHERE}class TinyNorm:\n    def forward(self, x):\n        "
    old = f"{head}m = torch.tril(x)\n        y = m * rsqrt(m + self.eps)\n        return y.to(dtype)\n"
    new = f"{head}return self.shaped(x).to(dtype)\n    def shaped(self, x):\n        m = torch.tril(x)\n"
    new += "        return m * rsqrt(m + self.eps)\n"
    found = {change.kind for change in outcome(remote_code, {"m.py": old}, {"m.py": new}).changes}
    assert found == {"training-code-changed"}


SCALED = "w = labels / scale\ny = x / scale\nz = y + residual\nq = z\nreturn act_fn(y)[:, 1] * q"
TURNED = "an operator is turned round"


@rows("old new kind detail")
def test_the_only_place_that_changed_says_what_became_of_it(old: str, new: str, kind: str, detail: str | None) -> None:
    before, after = (text.replace("\n", "\n        ") for text in (SCALED, SCALED.replace(old, new)))
    sides = (
        {"m.py": f"{FORWARD.replace('other', 'scale, residual, norm_factor')}        {one}\n"}
        for one in (before, after)
    )
    found = {(change.kind, change.detail) for change in outcome(remote_code, *sides).changes}
    assert (kind, detail) in found


@pytest.mark.parametrize(("old", "new"), [("full(x).triu(1)", "full(x).triu(2)"), ("x.size(-1)", "x.size(-2)")])
def test_another_number_of_a_size_or_a_triangle_is_another_value(old: str, new: str) -> None:
    sides = ({"m.py": f"{FORWARD}        y = x / f({one})\n        return y\n"} for one in (old, new))
    (change,) = outcome(remote_code, *sides).changes
    assert change.kind == "value-replaced" and change.before and old.endswith(change.before) and change.after


def test_a_mask_that_is_turned_round_in_one_place_is_said_so() -> None:
    mask = "def _make_causal_mask(mask, at):\n    mask.masked_fill_(at < at.view(4, 1), 0)\n    return mask\n"
    (change,) = outcome(remote_code, {"m.py": mask}, {"m.py": mask.replace("<", ">")}).changes
    assert (change.kind, change.detail) == ("padding-mask-changed", TURNED)


RENAMED = """
class Layer:
    def forward(self, x, past_key_value=None):
        if past_key_value is not None:
            x = past_key_value.update(x, 0)
        return _scale_all(x, 2) + x
class M:
    def forward(self, x, past_key_values=None):
        return self.layer(x, past_key_value=past_key_values) * _scale_all(x, 1)
def _scale_all(x, by):
    y = x * by + x.mean(-1, keepdim=True) * by
    return y.clamp(min=by)
"""


@pytest.mark.parametrize(
    ("edits", "expected"),
    [
        ({"past_key_value=": "past_key_values=", "past_key_value.": "past_key_values.", "value is": "values is"}, ""),
        ({"_scale_all": "_scaled"}, ""),
        ({"_scale_all": "_scaled", "x, 2": "x, 3"}, "Layer.forward"),
        ({"def _scale_all": "def _scaled", "_scale_all(x, 2)": "_scaled(x, 2)"}, "Layer.forward"),
    ],
)
def test_what_has_another_name_wherever_it_is_used_computes_the_same(edits: dict[str, str], expected: str) -> None:
    new = RENAMED
    for before, after in edits.items():
        new = new.replace(before, after)
    found = outcome(remote_code, {"m.py": RENAMED}, {"m.py": new}).changes
    told = [one.symbol for one in found if one.kind not in {"signature-changed", "definition-moved", "formatting-only"}]
    assert told[:1] == [expected] * bool(expected) and len(found) > 1


def test_a_keyword_that_the_called_module_lost_is_said() -> None:
    text = (
        "class Rotary:\n    def forward(self, x, dtype):\n        return x\n"
        "class M:\n    def __init__(self):\n        self.rotary = Rotary()\n"
        "    def forward(self, x):\n        return self.rotary(x, dtype=x.dtype)\n"
    )
    found = outcome(remote_code, {"m.py": text}, {"m.py": text.replace("x, dtype):", "x):")}).changes
    refused = [(change.symbol, change.after, change.detail) for change in found if change.kind == "call-refused"]
    assert refused == [("M.forward", "dtype", "Rotary.forward")]
    taken = text.replace("x, dtype):", "x, **kwargs):")
    assert "call-refused" not in {one.kind for one in outcome(remote_code, {"m.py": text}, {"m.py": taken}).changes}


LAYERS = """
class Layer:
    def forward(self, x, mask=None, past=None, use_cache=False):
        return x
class M:
    def __init__(self):
        self.layers = ModuleList([Layer()])
    def forward(self, ids, mask=None, past=None, use_cache=False):
        x = self.embed(ids)
        for layer in self.layers:
            x = {}
        return x
"""
CHECKPOINTED = (
    "checkpoint(made(layer), x, mask)\n"
    "        def made(module):\n            return lambda *inputs: module(*inputs, past, use_cache)"
)


@pytest.mark.parametrize("call", ["layer(x, mask, past)", "self.ckpt(layer, x, mask, past)", CHECKPOINTED])
@pytest.mark.parametrize(
    ("taken", "is_told"), [("x, mask=None, sink=None, past=None", True), ("x, mask=None, past=None", False)]
)
def test_names_by_position_that_land_elsewhere_are_said(call: str, taken: str, is_told: bool) -> None:
    old = LAYERS.format(call.replace("ckpt", "_gradient_checkpointing_func"))
    new = old.replace("x, mask=None, past=None", taken, 1).replace("use_cache=False", "use_cache=False, more=None", 1)
    found = outcome(remote_code, {"m.py": old}, {"m.py": new}).changes
    told = [(one.symbol, one.before, one.after, one.detail) for one in found if one.kind == "arguments-misplaced"]
    assert told == [("M.forward", "past", "sink", "Layer.forward")] * is_told
    fitted = new.replace(" past, use", " None, past, use").replace("mask, past)", "mask, None, past)")
    assert is_told is False or "arguments-misplaced" not in {
        one.kind for one in outcome(remote_code, {"m.py": old}, {"m.py": fitted}).changes
    }


def test_what_comes_with_an_option_that_is_off_is_not_judged() -> None:
    config = "class TinyConfig:\n    def __init__(self, width=1, {}**kwargs):\n        self.width = width\n"
    model = ELSEWHERE + "class M:\n    def forward(self, x):\n        {}return x\n"
    option = "if self.twice:\n            x = x + residual\n        "
    kinds = []
    for default in ("False", "True"):
        sides = [config.format("") + model.format(""), config.format(f"twice={default}, ") + model.format(option)]
        found = outcome(remote_code, *({"m.py": side} for side in sides)).changes
        kinds.append({change.kind for change in found if change.symbol == "M.forward"})
    assert kinds == [{"training-code-changed"}, {"residual-changed", "training-code-changed"}]


def test_places_are_told_only_of_a_function_that_changed_alone() -> None:
    text = f"{ELSEWHERE}class M:\n    def forward(self, x):\n        a, b = self.two(x)\n        return a - b\n"
    text += "    def two(self, x):\n        return f(x), g(x)\n"
    swapped = text.replace("f(x), g(x)", "g(x), f(x)")
    found = outcome(remote_code, {"m.py": text}, {"m.py": swapped})
    holds(found, "places-changed M.two: return (f(x), g(x)) -> return (g(x), f(x))")
    found = outcome(remote_code, {"m.py": text}, {"m.py": swapped.replace("a, b =", "b, a =")})
    holds(found, "training-code-changed M.forward", "training-code-changed M.two")


def test_labels_that_a_loss_of_transformers_shifts_are_no_other_labels() -> None:
    shifted = "logits = x[..., :-1, :]\nlabels = labels[..., 1:]\nloss = cross_entropy(logits, labels)\nreturn loss"
    compare(shifted, "loss = self.loss_function(x, labels)\nreturn loss", "loss-changed M.forward", OTHER)
    compare(
        "return self.loss_function(x, labels)", "return self.loss_function(x, labels[..., 1:])", "label-shift-changed"
    )


def test_an_option_that_is_only_stored_is_not_told_as_training_code() -> None:
    config = "class TinyConfig:\n    def __init__(self, width=1, {}**kwargs):\n        self.width = width\n{}"
    model = "class M:\n    def forward(self, x):\n        return getattr(self.config, 'known', x)\n"
    for name, kinds in {
        "fresh": {"signature-extended"},
        "known": {"signature-extended", "training-code-changed"},  # the old code asks for it
        "sliding_window": {"signature-extended", "training-code-changed"},  # and transformers does
    }.items():
        sides = [config.format("", ""), config.format(f"{name}=1, ", f"        self.{name} = {name}\n")]
        found = outcome(remote_code, *({"m.py": side + model} for side in sides)).changes
        assert {change.kind for change in found} == kinds, name


NAMED = """
import math
LIMIT = 3
def helper(x):
    return x
class M:
    width = 2
    def forward(self, x):
        {}
    def chat(self, x):
        return x
"""


@rows("body")
def test_a_name_that_is_bound_somewhere_is_defined(body: str) -> None:
    found = outcome(remote_code, *({"m.py": NAMED.format(one)} for one in ("return x", body.replace("{{", "{"))))
    assert "name-undefined" not in {change.kind for change in found.changes}


def test_a_name_that_nothing_binds_is_told_and_so_is_its_mend() -> None:
    whole, broken = NAMED.format("return helper(x)"), NAMED.format("return helpers(x)")
    holds(outcome(remote_code, {"m.py": whole}, {"m.py": broken}), "name-undefined M.forward: None -> helpers")
    holds(outcome(remote_code, {"m.py": broken}, {"m.py": whole}), "name-mended M.forward: helpers -> None")
    known, of_the_class = NAMED.format("return x + LIMIT"), NAMED.format("return x + width")
    holds(outcome(remote_code, {"m.py": known}, {"m.py": of_the_class}), "name-undefined M.forward: None -> width")
    for other in (f"from kernels import *\n{broken}", whole.replace("        return x\n", "        return xs\n")):
        kinds = {change.kind for change in outcome(remote_code, {"m.py": whole}, {"m.py": other}).changes}
        assert "name-undefined" not in kinds  # it may come with the star; it is only in chat
    moved = broken.replace("forward", "step")
    assert "name-undefined" not in {one.kind for one in outcome(remote_code, {"m.py": broken}, {"m.py": moved}).changes}


def test_the_list_of_a_modules_names_has_no_effect() -> None:
    compared = outcome(remote_code, {"m.py": "x = 1\n"}, {"m.py": "x = 1\n__all__ = ['x']\n"})
    holds(compared, "formatting-only m.py")


def test_a_hunk_has_the_numbers_of_the_file_and_no_control_characters_and_an_end() -> None:
    head = ELSEWHERE + "# a\n" * 39
    body = "".join(f"    x = f(x, {n}) + '\\u202e'\n" for n in range(1000))
    old, new = (f"{head}def f(x):\n{text}    return x\n" for text in (body, body.replace("f(x,", "g(x,\x0c ")))
    (change,) = outcome(remote_code, {"m.py": old}, {"m.py": new}).changes
    assert change.hunk[0].startswith("@@ -41,")
    assert len(change.hunk) <= 400
    assert max(map(len, change.hunk)) <= 240
    assert not any(letter in line for line in change.hunk for letter in "\n\r\t\x0c\u202e")
    assert {line[0] for line in change.hunk} <= {"+", "-", " ", "@"}


def test_a_hook_that_names_a_class_of_another_file_is_not_judged() -> None:
    text = (
        f"{ELSEWHERE}class M:\n    def forward(self, x):\n        if self.gradient_checkpointing:\n"
        "            return checkpoint(self.f, x)\n        return x\n"
        "    def _set_gradient_checkpointing(self, module, value=False):\n"
        "        if isinstance(module, M):\n            module.gradient_checkpointing = value\n"
    )
    found = outcome(remote_code, {"m.py": text}, {"m.py": text.replace("module, M)", "module, Encoder)")})
    holds(found, "training-code-changed M._set_gradient_checkpointing")


SWITCHED = """
class Encoder:
    def forward(self, x):
        if self.gradient_checkpointing and self.training:
            return checkpoint(self.layer, x)
        return self.layer(x)
class Base(PreTrainedModel):
    supports_gradient_checkpointing = True
    def _set_gradient_checkpointing(self, module, value=False):
        if isinstance(module, Encoder):
            module.gradient_checkpointing = value
"""
BRANCH = "if self.gradient_checkpointing and self.training:\n            return checkpoint(self.layer, x)"
UNUSED = SWITCHED.replace(BRANCH, "x = x + 0")
OWN = SWITCHED.partition("    def _set")[0]


@pytest.mark.parametrize(
    ("old", "new", "kind"),
    [
        (SWITCHED, UNUSED, "noop"),
        (UNUSED, SWITCHED, "mended"),
        (SWITCHED, SWITCHED.replace("return checkpoint(self.layer, x)", "return self.layer(x)"), "noop"),
        (SWITCHED, OWN, ""),  # transformers sets the flag of whoever has one
        (SWITCHED, SWITCHED.replace("(module, Encoder)", "(module, (Encoder, Base))"), ""),
        (SWITCHED, OWN.replace("class Encoder:", "class Encoder(GradientCheckpointingLayer):"), ""),
        (UNUSED, UNUSED + "x = 1\n", ""),
        (SWITCHED, SWITCHED.replace("checkpointing = value", "checkpointing = False"), "noop"),
    ],
)
def test_checkpointing_reaches_whoever_asks_for_it(old: str, new: str, kind: str) -> None:
    found = {change.kind for change in outcome(remote_code, {"m.py": old}, {"m.py": new}).changes}
    kinds = {one for one in found if one in (f"gradient-checkpointing-{end}" for end in ("noop", "mended", "fails"))}
    assert kinds == ({f"gradient-checkpointing-{kind}"} if kind else set())


def test_of_a_function_that_was_rewritten_no_cause_is_sought_and_that_is_said() -> None:
    def side(number: int, count: int) -> str:
        lines = "".join(f"        x = x.float() * {number}{place}\n" for place in range(count))
        return f"class M:\n    def forward(self, x, labels=None):\n{lines}        return x\n"

    for count, detail in ((15, "+15 -15"), (16, "32 statements changed, too many to seek a cause")):
        (change,) = outcome(remote_code, *({"m.py": side(number, count)} for number in (1, 2))).changes
        assert (change.kind, change.detail) == ("training-code-changed", detail)
