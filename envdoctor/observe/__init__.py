"""Observation: what is, one module a source. Reads files and machines into facts, and never judges.

In: an environment, a machine, a lock, a pasted report, a model, a recipe, code. Out: facts with their origins.
Imports ``matrix`` and what is below it.
"""

from envdoctor.door import door

__all__, __getattr__ = door(
    __name__,
    {
        "binaries.reading.elf_file": "ElfError ElfFile",
        "binaries.reading.extension_check": "gnu_hash",
        "documents.drift": "drift_between to_compare",
        "documents.facts_file": "FLIGHT_SCHEMA FactsFileError SCHEMA facts_of_document load_facts_document "
        "read_facts_file",
        "documents.locks.lock": "LockError",
        "documents.reports.report_file": "report_facts",
        "documents.tracebacks": "Failure Reading failure_of imported_in module_of numbered read_error",
        "errors": "ObservationError",
        "gather": "observers",
        "locate.caller": "Running",
        "locate.layout": "EnvironmentNotFound EnvironmentUnreadable Layout",
        "locate.target": "choose",
        "model.reading.auto_map": "AUTO_MAP_FILES entries",
        "model.reading.hub_cache": "CachedCommit cache_folder cached_repos commit_of_path matching",
        "model.reading.json_object": "JsonObject JsonProblem LARGEST parse_object",
        "model.reading.model_file": "read_bytes read_object",
        "model.reading.names": "NameProblem NamedModel is_repo_name is_revision parse_name printable spellings",
        "model.reading.shapes": "Shape shape_of",
        "model.reading.source": "resolve",
        "recipe.assignments": "AssignmentError parse_assignments",
        "recipe.files": "RecipeFileError",
        "recipe.recipe": "Recipe read_recipe",
        "request": "Request Target",
        "sources": "Ask DOCUMENTS Environment SOURCES cut_short notes_of observe_environment platform_name",
    },
)
