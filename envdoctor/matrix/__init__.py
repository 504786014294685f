"""The matrix: rules, tables and the ledger, read, checked and compiled. Nothing here judges.

In: ``matrices/``, or its compiled form in a wheel. Out: rules with their conditions, rows of tables, which releases
have a thing. Imports ``source`` and what is below it.
"""

from envdoctor.door import door

__all__, __getattr__ = door(
    __name__,
    {
        "gpu_code": "arch_lists capability compiler_range gpu_named is_nightly is_one_of kernels other_accelerator",
        "ledger": "Ledger PACKED Released",
        "linting": "lint_documents lint_rule Schemas strange_words",
        "lookup": "Symbol Lacking Move TakenNames answer fitting_consumers fitting_providers inherited_from keepers "
        "missing modules_with name_moves part_moves went_to where",
        "entry_statements": "EntryStatement entries",
        "matrix": "LARGEST Matrix MatrixError TomlError add_file load_matrix load_source "
        "load_toml parse_toml read_matrix read_source",
        "released_wheels": "KnownNames no_wheel transformers_types wanted_here with_wheel",
        "rule_file": "ANY DATE faults FLAG Kind one_of parse_rule rows RuleError TABLE TEXT TEXT_OR_TEXTS",
        "rules": "Condition ConditionError CONFIDENCES EFFECTS glob_fits parse_condition placeholders Rule SEVERITIES "
        "spelled with_conditions",
        "symptoms": "Log Seen seen_in",
    },
)
