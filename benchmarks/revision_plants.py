"""Single changes planted in modeling files: faults that somebody who trains must hear of, and changes that do no harm.

A fault is one edit of one place of the syntax tree, so that level, function and cause are known by construction. The
files are released modeling files of transformers, edited in a folder of their own; nothing of them is kept here.
"""

from __future__ import annotations

import ast
import random
import re
from collections.abc import Callable, Iterator
from typing import NamedTuple

from revision_sources import Files, target

OFF_PATH = re.compile(r"Classification|QuestionAnswering|DoubleHeads|Flash|prepare_inputs|_reorder|load_tf|Generat")
Function = ast.FunctionDef


class Edit(NamedTuple):
    """Bytes ``start`` to ``end`` of a module become ``text``; ``symbol`` is the function or class around them."""

    start: int
    end: int
    text: str
    symbol: str


class Planted(NamedTuple):
    """A module after an edit: how the edit is called, what must be heard, the causes that name it, and the text."""

    kind: str
    level: str
    symbol: str
    causes: tuple[str, ...]
    text: str


class Code:
    """A module as text and tree, with the places of its nodes."""

    def __init__(self, text: str, target_class: str) -> None:
        """Parse the module."""
        self.data, self.target = text.encode(), target_class
        self.tree = ast.parse(text)
        self._lines = [0]
        for line in self.data.splitlines(keepends=True):
            self._lines.append(self._lines[-1] + len(line))

    def span(self, node: ast.stmt | ast.expr) -> tuple[int, int]:
        """Return the bytes of a node, decorators included."""
        first = min([node, *getattr(node, "decorator_list", [])], key=lambda one: one.lineno)
        start = self._lines[first.lineno - 1] + first.col_offset - (first is not node)
        return start, self._lines[(node.end_lineno or 1) - 1] + (node.end_col_offset or 0)

    def source(self, node: ast.stmt | ast.expr) -> str:
        """Return the text of a node."""
        start, end = self.span(node)
        return self.data[start:end].decode()

    def functions(self, pattern: str) -> Iterator[tuple[str, Function]]:
        """Yield functions on the training path, of classes (or, at the top, with names) that match the pattern."""
        for top in self.tree.body:
            held = top.body if isinstance(top, ast.ClassDef) else [top]
            for node in held:
                if isinstance(node, Function):
                    symbol = f"{top.name}.{node.name}" if isinstance(top, ast.ClassDef) else node.name
                    if re.search(pattern, symbol) and not OFF_PATH.search(symbol):
                        yield symbol, node

    def replaced(self, node: ast.stmt | ast.expr, text: str, symbol: str) -> Edit:
        """Return the edit that puts a text in the place of a node."""
        return Edit(*self.span(node), text, symbol)

    def edited(self, edit: Edit) -> str:
        """Return the module after an edit."""
        return (self.data[: edit.start] + edit.text.encode() + self.data[edit.end :]).decode()


Find = Callable[[Code], Iterator[Edit]]
ATTENTION, LAYER, HEAD = r"Attention\.", r"(Layer|Block)\.forward", r"(ForCausalLM|LMHeadModel)\.forward"


def within(code: Code, pattern: str, wanted: type[ast.AST]) -> Iterator[tuple[str, ast.AST]]:
    """Yield the nodes of a type in functions on the training path."""
    for symbol, function in code.functions(pattern):
        for node in ast.walk(function):
            if isinstance(node, wanted):
                yield symbol, node


def calls(code: Code, pattern: str, name: str) -> Iterator[tuple[str, ast.Call]]:
    """Yield the calls of what matches ``name`` in functions on the training path."""
    for symbol, node in within(code, pattern, ast.Call):
        assert isinstance(node, ast.Call)
        if re.search(name, ast.unparse(node.func)):
            yield symbol, node


def operations(code: Code, pattern: str, operator: type[ast.operator]) -> Iterator[tuple[str, ast.BinOp]]:
    """Yield the binary operations of a kind in functions on the training path."""
    for symbol, node in within(code, pattern, ast.BinOp):
        if isinstance(node, ast.BinOp) and isinstance(node.op, operator):
            yield symbol, node


def mask_not_added(code: Code) -> Iterator[Edit]:
    """Drop the attention mask from the scores."""
    for symbol, node in operations(code, ATTENTION, ast.Add):
        if ast.unparse(node.right) == "attention_mask":
            yield code.replaced(node, code.source(node.left), symbol)


def causal_choice_lost(code: Code) -> Iterator[Edit]:
    """Keep the scores that the causal mask would hide."""
    for symbol, node in calls(code, ATTENTION, r"^torch\.where$"):
        if "mask" in ast.unparse(node.args[0]):
            yield code.replaced(node, code.source(node.args[1]), symbol)


def causal_direction(code: Code) -> Iterator[Edit]:
    """Show the future and hide the past."""
    for symbol, node in within(code, r"^_make_causal_mask$", ast.Compare):
        assert isinstance(node, ast.Compare)
        if isinstance(node.ops[0], ast.Lt):
            yield code.replaced(node, f"{code.source(node.left)} > {code.source(node.comparators[0])}", symbol)


def padding_inverted(code: Code) -> Iterator[Edit]:
    """Hide what is no padding."""
    for symbol, node in operations(code, r"mask|Model\.forward", ast.Sub):
        if ast.unparse(node.left) == "1.0" and "mask" in ast.unparse(node.right):
            yield code.replaced(node, code.source(node.right), symbol)


def softmax_precision(code: Code) -> Iterator[Edit]:
    """Take the softmax in the precision of the scores."""
    for symbol, node in calls(code, ATTENTION, "softmax$"):
        if any(one.arg == "dtype" for one in node.keywords):
            kept = [code.source(one) for one in node.args]
            kept += [f"{one.arg}={code.source(one.value)}" for one in node.keywords if one.arg != "dtype"]
            yield code.replaced(node, f"{code.source(node.func)}({', '.join(kept)})", symbol)


def norm_precision(code: Code) -> Iterator[Edit]:
    """Leave out the cast to float32 in a norm."""
    for symbol, node in calls(code, r"Norm\.forward", r"\.to$"):
        if "float32" in ast.unparse(node):
            assert isinstance(node.func, ast.Attribute)
            yield code.replaced(node, code.source(node.func.value), symbol)


def logits_precision(code: Code) -> Iterator[Edit]:
    """Leave out the cast of the logits to float32."""
    for symbol, node in calls(code, HEAD, r"logits\.(float|to)$"):
        if "float" in ast.unparse(node):
            assert isinstance(node.func, ast.Attribute)
            yield code.replaced(node, code.source(node.func.value), symbol)


def label_shift(code: Code) -> Iterator[Edit]:
    """Cut the labels at the wrong end, so that a token predicts itself."""
    for symbol, node in within(code, HEAD, ast.Subscript):
        assert isinstance(node, ast.Subscript)
        if re.fullmatch(r"labels\[\.\.\., 1:\]", ast.unparse(node)):
            yield code.replaced(node, "labels[..., :-1]", symbol)


def ignored_label(code: Code) -> Iterator[Edit]:
    """Ignore token 0 instead of -100."""
    for symbol, node in calls(code, HEAD, "CrossEntropyLoss$"):
        yield code.replaced(node, f"{code.source(node.func)}(ignore_index=0)", symbol)


def loss_summed(code: Code) -> Iterator[Edit]:
    """Add the losses of tokens instead of averaging them."""
    for symbol, node in calls(code, HEAD, "CrossEntropyLoss$"):
        yield code.replaced(node, f'{code.source(node.func)}(reduction="sum")', symbol)


def loss_detached(code: Code) -> Iterator[Edit]:
    """Cut the loss from the graph."""
    for symbol, node in calls(code, HEAD, "^loss_fct$"):
        yield code.replaced(node, f"{code.source(node)}.detach()", symbol)


def layer_detached(code: Code) -> Iterator[Edit]:
    """Cut the feed-forward part of a layer from the graph."""
    for symbol, node in calls(code, LAYER, r"^self\.(mlp|fc2|ffn|feed_forward)$"):
        yield code.replaced(node, f"{code.source(node)}.detach()", symbol)


def layer_without_gradients(code: Code) -> Iterator[Edit]:
    """Run a layer without gradients."""
    for symbol, node in code.functions(LAYER):
        start, _ = code.span(node)
        yield Edit(start, start, f"@torch.no_grad()\n{' ' * node.col_offset}", symbol)


def residual_lost(code: Code) -> Iterator[Edit]:
    """Leave the residual out of a layer."""
    for symbol, node in operations(code, LAYER, ast.Add):
        sides = {ast.unparse(node.left): node.right, ast.unparse(node.right): node.left}
        if "residual" in sides:
            yield code.replaced(node, code.source(sides["residual"]), symbol)


def scale_lost(code: Code) -> Iterator[Edit]:
    """Leave the scores unscaled."""
    for operator, scale in ((ast.Div, r"sqrt|scale_attn|norm_factor"), (ast.Mult, r"^self\.scaling$")):
        for symbol, node in operations(code, ATTENTION + r"(forward|_attn)", operator):
            if re.search(scale, ast.unparse(node.right)):
                yield code.replaced(node, code.source(node.left), symbol)


def rotary_sign(code: Code) -> Iterator[Edit]:
    """Rotate both halves in the same direction."""
    for symbol, node in within(code, r"^rotate_(half|every_two)$", ast.UnaryOp):
        assert isinstance(node, ast.UnaryOp)
        if isinstance(node.operand, ast.Name):
            yield code.replaced(node, code.source(node.operand), symbol)


def rotary_interleaved(code: Code) -> Iterator[Edit]:
    """Take every second number where the first half belongs."""
    for symbol, node in within(code, r"^rotate_half$", ast.Subscript):
        if re.fullmatch(r"x\[\.\.\., :x\.shape\[-1\] // 2\]", ast.unparse(node)):
            assert isinstance(node, ast.Subscript)
            yield code.replaced(node, "x[..., ::2]", symbol)


def rotary_thrown_away(code: Code) -> Iterator[Edit]:
    """Throw the rotated queries and keys away."""
    for symbol, node in within(code, ATTENTION, ast.Assign):
        assert isinstance(node, ast.Assign)
        if isinstance(node.value, ast.Call) and "apply_rotary" in ast.unparse(node.value.func):
            yield code.replaced(node, code.source(node.value), symbol)


def positions_overridden(code: Code) -> Iterator[Edit]:
    """Count positions from zero whatever the caller gave."""
    for symbol, node in within(code, r"Model\.forward", ast.If):
        assert isinstance(node, ast.If)
        if ast.unparse(node.test) == "position_ids is None":
            yield code.replaced(node.test, "True", symbol)


def checkpoint_branch_dead(code: Code) -> Iterator[Edit]:
    """Checkpoint outside training alone."""
    for symbol, node in within(code, r"\.forward", ast.If):
        assert isinstance(node, ast.If)
        guards = ast.unparse(node.test) == "self.gradient_checkpointing and self.training"
        if guards and any("checkpoint.checkpoint(" in ast.unparse(one) for one in node.body):
            yield code.replaced(node.test, "self.gradient_checkpointing and not self.training", symbol)


def checkpoint_class(code: Code) -> Iterator[Edit]:
    """Switch checkpointing on in a class that does not read the switch."""
    others = [node.name for node in code.tree.body if isinstance(node, ast.ClassDef) and "Attention" in node.name]
    for symbol, node in calls(code, r"_set_gradient_checkpointing", "^isinstance$"):
        yield code.replaced(node.args[1], others[0], symbol)


def checkpoint_switch(code: Code) -> Iterator[Edit]:
    """Leave the switch of checkpointing off."""
    for symbol, node in within(code, r"_set_gradient_checkpointing", ast.Assign):
        assert isinstance(node, ast.Assign)
        yield code.replaced(node.value, "False", symbol)


def checkpoint_not_called(code: Code) -> Iterator[Edit]:
    """Call the layer itself where it should be checkpointed."""
    for symbol, node in calls(code, r"\.forward", r"checkpoint\.checkpoint$"):
        given = ", ".join(code.source(one) for one in node.args[1:])
        yield code.replaced(node, f"{code.source(node.args[0])}({given})", symbol)


def dropout_always(code: Code) -> Iterator[Edit]:
    """Drop out while evaluating too."""
    for symbol, node in calls(code, r"\.(forward|_attn)", "dropout$"):
        for one in node.keywords:
            if ast.unparse(one) == "training=self.training":
                yield code.replaced(one.value, "True", symbol)


def last_layer_skipped(code: Code) -> Iterator[Edit]:
    """Leave the last layer out."""
    for symbol, loop in within(code, r"(Model|Decoder|Transformer)\.forward", ast.For):
        assert isinstance(loop, ast.For)
        for node in ast.walk(loop.iter):
            if isinstance(node, ast.Attribute) and re.fullmatch(r"self\.(layers|h|blocks)", ast.unparse(node)):
                yield code.replaced(node, f"{code.source(node)}[:-1]", symbol)


def activation_lost(code: Code) -> Iterator[Edit]:
    """Leave the activation out of the feed-forward part."""
    for symbol, node in calls(code, r"(MLP|Layer)\.forward", r"^self\.(act|act_fn|activation_fn|gelu_impl)$"):
        yield code.replaced(node, code.source(node.args[0]), symbol)


def heads_scrambled(code: Code) -> Iterator[Edit]:
    """Merge the heads without putting them behind the positions."""
    for symbol, node in calls(code, ATTENTION + "forward", r"^(attn_output|context_layer)\.transpose$"):
        assert isinstance(node.func, ast.Attribute)
        yield code.replaced(node, code.source(node.func.value), symbol)


def keys_for_values(code: Code) -> Iterator[Edit]:
    """Weigh the keys instead of the values."""
    for symbol, node in calls(code, ATTENTION, r"^torch\.(matmul|bmm)$"):
        if re.fullmatch(r"value(_states|_layer)?", ast.unparse(node.args[1])):
            yield code.replaced(node.args[1], code.source(node.args[1]).replace("value", "key"), symbol)


def epsilon_lost(code: Code) -> Iterator[Edit]:
    """Divide by a variance that may be zero."""
    for symbol, node in operations(code, r"Norm\.forward", ast.Add):
        if "eps" in ast.unparse(node.right):
            yield code.replaced(node, code.source(node.left), symbol)


def conflict_marks(code: Code) -> Iterator[Edit]:
    """Leave the marks of a merge in the module."""
    for symbol, node in code.functions(HEAD):
        start = code.span(node.body[-1])[0] - node.body[-1].col_offset
        yield Edit(start, start, "<<<<<<< HEAD\n=======\n>>>>>>> main\n", symbol)


def target_gone(code: Code) -> Iterator[Edit]:
    """Rename the class that auto_map names."""
    for node in code.tree.body:
        if isinstance(node, ast.ClassDef) and node.name == code.target:
            start = code.data.index(f"class {node.name}(".encode())
            yield Edit(start, start + len(f"class {node.name}"), f"class {node.name}Base", node.name)


def module_missing(code: Code) -> Iterator[Edit]:
    """Import the configuration from a file that is not there."""
    for node in code.tree.body:
        if isinstance(node, ast.ImportFrom) and node.level == 1 and node.module:
            yield code.replaced(node, code.source(node).replace(node.module, f"{node.module}_base"), node.module)


FAULTS: dict[str, tuple[str, tuple[str, ...], Find]] = {
    "causal or padding mask not added": ("error", ("mask",), mask_not_added),
    "causal mask not applied": ("error", ("mask",), causal_choice_lost),
    "causal mask upside down": ("error", ("mask",), causal_direction),
    "padding mask inverted": ("error", ("mask",), padding_inverted),
    "softmax not in fp32": ("warning", ("precision",), softmax_precision),
    "norm not in fp32": ("warning", ("precision",), norm_precision),
    "logits not in fp32": ("warning", ("precision",), logits_precision),
    "labels not shifted": ("error", ("loss",), label_shift),
    "token 0 ignored": ("error", ("loss",), ignored_label),
    "loss summed": ("error", ("loss",), loss_summed),
    "loss detached": ("error", ("gradient",), loss_detached),
    "feed-forward detached": ("error", ("gradient",), layer_detached),
    "layer without gradients": ("error", ("gradient",), layer_without_gradients),
    "residual lost": ("error", ("residual", "other"), residual_lost),
    "scale lost": ("error", ("scale",), scale_lost),
    "rotary sign": ("error", ("position",), rotary_sign),
    "rotary interleaved": ("error", ("position",), rotary_interleaved),
    "rotary result thrown away": ("error", ("position", "result"), rotary_thrown_away),
    "positions overridden": ("warning", ("position",), positions_overridden),
    "checkpointing branch dead": ("error", ("checkpointing",), checkpoint_branch_dead),
    "checkpointing of the wrong class": ("error", ("checkpointing",), checkpoint_class),
    "checkpointing never switched on": ("error", ("checkpointing",), checkpoint_switch),
    "checkpointing not called": ("error", ("checkpointing",), checkpoint_not_called),
    "dropout in evaluation": ("warning", ("dropout",), dropout_always),
    "last layer skipped": ("error", ("other",), last_layer_skipped),
    "activation lost": ("error", ("other",), activation_lost),
    "heads scrambled": ("error", ("result", "other"), heads_scrambled),
    "keys taken for values": ("error", ("other",), keys_for_values),
    "epsilon lost": ("warning", ("precision", "other"), epsilon_lost),
    "conflict marks": ("error", ("imports",), conflict_marks),
    "target class gone": ("error", ("imports",), target_gone),
    "imported file missing": ("error", ("imports",), module_missing),
}


def local_renamed(code: Code) -> Iterator[Edit]:
    """Give a local variable another name."""
    for symbol, function in code.functions(r"\.(forward|_attn)"):
        given = {one.arg for node in ast.walk(function) if isinstance(node, ast.arguments) for one in node.args}
        names = [node for node in ast.walk(function) if isinstance(node, ast.Name)]
        texts = [node for node in ast.walk(function) if isinstance(node, ast.JoinedStr)]
        given |= {node.id for text in texts for node in ast.walk(text) if isinstance(node, ast.Name)}  # no places
        own = sorted({one.id for one in names if isinstance(one.ctx, ast.Store)} - given)
        for name in own:
            start, end = code.span(function)
            places = sorted((code.span(one) for one in names if one.id == name), reverse=True)
            data = code.data
            for first, last in places:
                data = data[:first] + f"{name}_here".encode() + data[last:]
            grown = end + len(data) - len(code.data)
            yield Edit(start, end, data[start:grown].decode(), symbol)


def reformatted(code: Code) -> Iterator[Edit]:
    """Write the whole module as another formatter would, without comments."""
    yield Edit(0, len(code.data), ast.unparse(code.tree) + "\n", "")


def line_logged(code: Code) -> Iterator[Edit]:
    """Log that a function was entered."""
    for symbol, function in code.functions(r"\.forward"):
        first = function.body[1 if ast.get_docstring(function) and len(function.body) > 1 else 0]
        start, _ = code.span(first)
        yield Edit(start, start, f'logger.debug("enters %s", "{symbol}")\n{" " * first.col_offset}', symbol)


def hints_dropped(code: Code) -> Iterator[Edit]:
    """Take the type hints from the parameters of a function."""
    for symbol, function in code.functions(r"\.forward"):
        start, end = code.span(function)
        hints = [one.annotation for one in function.args.args if one.annotation]
        data = code.data
        for hint in sorted(hints, key=lambda one: -code.span(one)[0]):
            first, last = code.span(hint)
            data = data[:first].rstrip().removesuffix(b":") + data[last:]
        if hints:
            yield Edit(start, end, data[start : end + len(data) - len(code.data)].decode(), symbol)


def comment_added(code: Code) -> Iterator[Edit]:
    """Put a comment above a statement."""
    for symbol, function in code.functions(r"\.forward"):
        start, _ = code.span(function.body[-1])
        pad = " " * function.body[-1].col_offset
        yield Edit(start, start, f"# causal mask, labels and checkpoint() as before\n{pad}", symbol)


def docstring_changed(code: Code) -> Iterator[Edit]:
    """Write another docstring."""
    for symbol, node in within(code, r"\.", ast.FunctionDef):
        assert isinstance(node, Function)
        if ast.get_docstring(node) and not node.decorator_list:  # decorators of transformers read the text
            yield code.replaced(node.body[0], '"""Another text about mask, dtype and loss."""', symbol)


def methods_swapped(code: Code) -> Iterator[Edit]:
    """Put two neighbouring methods in the other order."""
    for top in code.tree.body:
        if isinstance(top, ast.ClassDef) and not OFF_PATH.search(top.name):
            for one, other in zip(top.body, top.body[1:], strict=False):
                if isinstance(one, Function) and isinstance(other, Function) and one.name != other.name:
                    (start, middle), (after, end) = code.span(one), code.span(other)
                    between = code.data[middle:after].decode()
                    yield Edit(start, end, code.source(other) + between + code.source(one), top.name)


def chat_added(code: Code) -> Iterator[Edit]:
    """Add a method for talking."""
    for symbol, function in code.functions(HEAD):
        _, end = code.span(function)
        yield Edit(
            end, end,
            "\n\n    def chat(self, tokenizer, query, history=None, **kwargs):\n"
            '        inputs = tokenizer([*(history or []), query][-1], return_tensors="pt")\n'
            "        return tokenizer.decode(self.generate(**inputs, **kwargs)[0])",
            symbol,
        )  # fmt: skip


def generation_changed(code: Code) -> Iterator[Edit]:
    """Change what generate alone calls."""
    for top in (node for node in code.tree.body if isinstance(node, ast.ClassDef) and node.name == code.target):
        for node in top.body:
            if isinstance(node, Function) and node.name == "prepare_inputs_for_generation" and node.args.kwarg:
                start, _ = code.span(node.body[0])
                pad = " " * node.body[0].col_offset
                yield Edit(start, start, f'{node.args.kwarg.arg}.pop("streamer", None)\n{pad}', top.name)


def error_reworded(code: Code) -> Iterator[Edit]:
    """Say an error in other words."""
    for symbol, node in within(code, r"Model\.forward", ast.Raise):
        assert isinstance(node, ast.Raise)
        if isinstance(node.exc, ast.Call) and isinstance(node.exc.args[0], ast.Constant):
            yield code.replaced(node.exc.args[0], '"Give one of input_ids and inputs_embeds."', symbol)


def imports_swapped(code: Code) -> Iterator[Edit]:
    """Put two neighbouring imports in the other order."""
    for one, other in zip(code.tree.body, code.tree.body[1:], strict=False):
        if isinstance(one, ast.Import | ast.ImportFrom) and isinstance(other, ast.Import | ast.ImportFrom):
            (start, middle), (after, end) = code.span(one), code.span(other)
            yield Edit(start, end, code.source(other) + code.data[middle:after].decode() + code.source(one), "")


HARMLESS: dict[str, Find] = {
    "local renamed": local_renamed,
    "reformatted": reformatted,
    "line logged": line_logged,
    "hints dropped": hints_dropped,
    "comment added": comment_added,
    "docstring changed": docstring_changed,
    "methods swapped": methods_swapped,
    "chat added": chat_added,
    "generation changed": generation_changed,
    "error reworded": error_reworded,
    "imports swapped": imports_swapped,
}


def planted(files: Files, seed: int, count: int) -> Iterator[Planted]:
    """Yield ``count`` faults of different kinds in the file that trains, drawn with a seed; fewer where fewer fit."""
    chance, code = random.Random(seed), _code(files)
    fitting = {kind: edits for kind, (_, _, find) in FAULTS.items() if (edits := list(find(code)))}
    for kind in sorted(chance.sample(sorted(fitting), min(count, len(fitting)))):
        edit = chance.choice(fitting[kind])
        level, causes, _ = FAULTS[kind]
        yield Planted(kind, level, edit.symbol, causes, code.edited(edit))


def harmless(files: Files, seed: int) -> Iterator[Planted]:
    """Yield one harmless change of each kind in the file that trains, drawn with a seed."""
    chance, code = random.Random(seed), _code(files)
    for kind, find in HARMLESS.items():
        edits = list(find(code))
        if edits:
            edit = chance.choice(edits)
            yield Planted(kind, "nothing", edit.symbol, (), code.edited(edit))


def _code(files: Files) -> Code:
    where = target(files, files)
    assert where is not None
    return Code(files[where[0]], where[1])
