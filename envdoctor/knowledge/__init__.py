"""The matrix: rule files, tables and families, read, checked and compiled. Nothing here judges."""
