"""Whether a method can be called the way a base class calls the method that it replaces."""

from __future__ import annotations

from collections.abc import Sequence

from envdoctor.source.definitions import FunctionNode, names_in, parameter_words
from envdoctor.source.signatures import added_by


def can_be_called(parameters: Sequence[str], call: str) -> bool:
    """Whether a method with these parameters (without the bound one) can be called so: ``2 num_items_in_batch=``."""
    count, *keywords = call.split(" ")
    given = {keyword[:-1] for keyword in keywords if keyword.endswith("=")}
    stars = [place for place, one in enumerate(parameters) if one.startswith("*") and not one.startswith("**")]
    positional = list(parameters[: stars[0]] if stars else parameters)
    positional = [one for one in positional if not one.startswith("**")]
    names = {one.rstrip("=") for one in parameters if not one.startswith("*")}
    takes_more = any(len(parameters[place]) > 1 for place in stars)
    if int(count) > len(positional) and not takes_more:
        return False
    if any(one.startswith("**") for one in parameters):
        return True
    filled = {one.rstrip("=") for one in positional[: int(count)]}
    if given - names or given & filled:
        return False
    required = {one for one in parameters if not one.startswith("*") and not one.endswith("=")}
    return "**" in keywords or required <= filled | given


def spelled(method: str, call: str) -> str:
    """``2 num_items_in_batch=`` as ``compute_loss(_, _, num_items_in_batch=_)``."""
    count, *keywords = call.split(" ")
    words = [*["_"] * min(int(count), 9), *(f"{one}_" for one in keywords)]
    return f"{method.rpartition('.')[2]}({', '.join(words)})"


def own_parameters(node: FunctionNode) -> tuple[str, ...] | None:
    """The parameters of a method without the bound one, as ``x``, ``x=``, ``*``, ``*args``, ``**kwargs``; None for what
    is no method of its class's callers, or may take others than it says."""
    if (node.name.startswith("__") and node.name.endswith("__")) or added_by(node.decorator_list) != set():
        return None
    words = list(parameter_words(node.args))
    return tuple(words if "staticmethod" in names_in(node.decorator_list) else words[1:])
