"""Derivations: facts computed from facts and tables. One module a derivation, found by its place in this folder.

A module declares ``INPUTS`` and ``OUTPUTS`` (fact keys; ``pkg.*`` stands for any package) and
``compute(value, matrix)``, where ``value(key)`` gives a :data:`~envdoctor.facts.values.Value` and ``matrix`` the
tables. It returns a mapping from output keys to :class:`Derived`, leaving out what it has nothing to say about. It
never judges.
"""

from __future__ import annotations

from envdoctor.derive.running import Derived, derivations, derive, with_facts

__all__ = ["Derived", "derivations", "derive", "with_facts"]
