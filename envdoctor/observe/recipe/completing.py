"""What follows from the statements of a recipe, and the defaults of its formats for what no file says."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from envdoctor.facts.values import Fact, Unknown, Value
from envdoctor.observe.recipe.formats import Format, Formats, spelled
from envdoctor.observe.recipe.statements import Statements, joined
from envdoctor.versions.pep440 import satisfies

__all__ = ["complete"]

_GPUS = re.compile(r"gpu(?::[\w.-]+)?:(\d+)\Z")
_WITH_REFERENCE = ("dpo", "kto", "ppo")


def complete(
    statements: Statements, forms: Sequence[Format], installed: Callable[[str], Value], unread: Sequence[str]
) -> None:
    """Add to what is said. ``forms`` are the recipe's formats, ``installed`` gives the facts of the environment, for
    defaults that changed with a release; ``unread`` are files that it names and that were not read."""
    said, formats = statements.said, statements.formats
    framework = next((form for form in forms if form.framework), None)
    if framework is not None:
        said["framework"] = statements.fact("framework", framework.framework, statements.files[framework.name])
    for field, fact in statements.weak.items():
        said[field] = joined(said.get(field), fact) if field == "kernels" else said.get(field, fact)
    # A file that was not read may say anything of DeepSpeed, for which nearly all such files are.
    for meanings in formats["deepspeed"].keys.values() if unread else ():
        for meaning in meanings:
            said.setdefault(meaning.field, statements.fact(meaning.field, Unknown(f"{unread[0]} was not read"), ""))
    if "gres" in said and (found := _GPUS.match(str(said["gres"].value))) is not None:
        said.setdefault("nproc", statements.fact("nproc", int(found[1]), said["gres"].origin))
    defaults = _with_included(forms, formats)
    fields = [
        "nnodes",
        "global_batch",
        "method",
        *(spec.key[7:] for spec in statements.registry if spec.key[:7] == "recipe."),
    ]
    _compute(statements, "max_length", lambda prompt, answer: prompt + answer + statements.extra,
             "prompt_length", "answer_length")  # fmt: skip
    for field in fields:
        adapters = field.startswith("lora_") and _value(said, "method") not in ("lora", "qlora")
        if field not in said and not adapters:
            said.update(_default(statements, field, defaults, installed))
    _compute(statements, "world_size", lambda each, nodes: each * nodes, "nproc", "nnodes")
    _compute(statements, "gradient_accumulation", lambda total, batch, world: max(1, total // (batch * world)),
             "global_batch", "train_batch_size", "world_size")  # fmt: skip
    _follow(statements, forms)


def _follow(statements: Statements, forms: Sequence[Format]) -> None:
    """The reference model, QLoRA, and the batch size: that of evaluation counts when it evaluates."""
    said = statements.said
    method = _value(said, "method")
    reference = next((form for form in forms if "reference" in form.row), None)
    if reference is not None and isinstance(method, str) and _value(said, "stage") in _WITH_REFERENCE:
        where = reference.row["reference"]["full" if method == "full" else "lora"]
        said.setdefault("reference_model", statements.fact("reference_model", where, _default_of(reference)))
    if method == "lora" and str(_value(said, "quantization")).startswith("bnb-"):
        said["method"] = said["method"]._replace(value="qlora")
    sizes = ["train_batch_size", *(["eval_batch_size"] if _value(said, "eval_strategy") in ("steps", "epoch") else [])]
    known = [said[size] for size in sizes if isinstance(_value(said, size), (int, float))]
    if len(known) == len(sizes):
        largest = max(known, key=lambda fact: float(str(fact.value)))
        said.setdefault("batch_size", largest._replace(key="recipe.batch_size"))


def _value(said: dict[str, Fact], field: str) -> Value | None:
    return said[field].value if field in said else None


def _compute(statements: Statements, field: str, formula: Callable[..., int | float], *parts: str) -> None:
    values = [_value(statements.said, part) for part in parts]
    if field not in statements.said and all(isinstance(value, (int, float)) for value in values):
        origins = [statements.said[part].origin for part in parts]
        origin = next((origin for origin in origins if not origin.startswith("default ")), origins[0])
        statements.said[field] = statements.fact(field, formula(*values), origin)


def _default(
    statements: Statements, field: str, forms: Sequence[Format], installed: Callable[[str], Value]
) -> dict[str, Fact]:
    for form in forms:
        for row in form.row.get("implied", ()):
            by = statements.said.get(row["by"])
            if row["field"] == field and by is not None and spelled(by.value) in row["words"]:
                return {field: statements.fact(field, row["value"], by.origin)}
        if field in form.row.get("defaults", {}):
            return {field: statements.fact(field, form.row["defaults"][field], _default_of(form))}
        for row in form.row.get("versioned", ()):
            version = installed(f"pkg.{row['package']}")
            if row["field"] == field and isinstance(version, str) and satisfies(version, row["releases"]) is True:
                return {field: statements.fact(field, row["value"], f"default with {row['package']} {version}")}
        if any(row["field"] == field for row in form.row.get("versioned", ())):
            break  # which of its defaults holds is not known, and no other format's does
    return {}


def _default_of(form: Format) -> str:
    return f"default of {form.row['title']}"


def _with_included(forms: Sequence[Format], formats: Formats) -> list[Format]:
    """The formats, behind them those whose keys stand among theirs: what they leave open those decide."""
    found = list(forms)
    for form in found:  # it grows
        inner = [formats[name] for name in form.includes.values()]
        found += [other for other in inner if other not in found and other.authority >= 0]
    return found
