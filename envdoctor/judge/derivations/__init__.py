"""Derivations: facts computed from facts and tables. A function each, in a file a subject.

``@derives("torch.cudnn", of="torch.cuda pkg.*")`` names what a function gives and reads: keys of facts; ``pkg.*`` is
any package. It is called with a :class:`~envdoctor.facts.view.View` of the facts and the tables. One output: it returns
:class:`Derived`, or an unknown value with its reason; several: a mapping by key, without those about which it has
nothing to say. It never judges.
"""

from envdoctor.judge.derivations.running import Derived, derivations, derive, with_facts

__all__ = ["Derived", "derivations", "derive", "with_facts"]
