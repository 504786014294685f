"""A matrix written by hand for one test."""

from small_matrix import facts, matrix_of, registry  # noqa: F401 (fixtures)
