"""Whether a method can be called the way a base class calls the one that it replaces."""

from __future__ import annotations

import pytest

from envdoctor.source import can_be_called


@pytest.mark.parametrize(
    ("parameters", "call", "fits"),
    [
        ("model inputs return_outputs=", "2", True),
        ("model inputs return_outputs=", "2 num_items_in_batch=", False),
        ("model inputs return_outputs= num_items_in_batch=", "2 num_items_in_batch=", True),
        ("model inputs **kwargs", "2 num_items_in_batch=", True),
        ("model inputs return_outputs=", "2 return_outputs=", True),
        ("", "1", False),
        ("", "0", True),
        ("dataset=", "1", True),
        ("*args", "5", True),
        ("*args", "5 x=", False),
        ("a b", "1", False),
        ("a b", "1 b=", True),
        ("a b", "2 b=", False),
        ("a * b", "1", False),
        ("a * b", "1 b=", True),
        ("a * b", "2", False),
        ("a *rest b=", "4", True),
        ("a b", "1 **", True),
        ("**kwargs", "1", False),
    ],
)
def test_calls(parameters: str, call: str, fits: bool):
    assert can_be_called(parameters.split(), call) is fits
