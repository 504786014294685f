"""A matrix written by hand for one test."""

from small_matrix import facts, matrix_of, outcome, registry, rule  # noqa: F401 (fixtures)
