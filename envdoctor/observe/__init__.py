"""Observation: what is, one module a source. Reads files and machines into facts, and never judges.

In: an environment, a machine, a lock, a pasted report, a model, a recipe, code. Out: facts with their origins.
Imports ``matrix`` and what is below it.
"""

from envdoctor.door import door

__all__, __getattr__ = door(
    __name__,
    {
        "binaries.elf_file": "ElfError ElfFile gnu_hash",
        "documents.facts_file": "AssignmentError drift_between facts_of_document FactsFileError FLIGHT_SCHEMA "
        "load_facts_document parse_assignments read_facts_file SCHEMA to_compare",
        "documents.locks.lock": "LockError",
        "documents.reports.report_file": "report_facts",
        "documents.tracebacks": "Failure failure_of imported_in module_of numbered read_error Reading",
        "errors": "ObservationError",
        "gather": "observers",
        "locate.layout": "EnvironmentNotFound EnvironmentUnreadable Layout",
        "locate.target": "choose Running",
        "model.config": "Shape shape_of",
        "model.files": "AUTO_MAP_FILES entries JsonObject JsonProblem LARGEST parse_object read_bytes read_object",
        "model.names": "cache_folder cached_repos CachedCommit commit_of_path is_repo_name is_revision matching "
        "NamedModel NameProblem parse_name printable resolve spellings",
        "recipe.files": "RecipeFileError",
        "recipe.recipe": "read_recipe Recipe",
        "request": "Request Target",
        "sources": "Ask DOCUMENTS Environment notes_of observe_environment platform_name SOURCES unread_parts",
    },
)
