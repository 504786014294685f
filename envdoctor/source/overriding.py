"""Whether a method can be called the way a base class calls the method that it replaces."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["can_be_called"]


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
