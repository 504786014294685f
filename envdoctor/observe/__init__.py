"""Observation: what is, one module a source. Reads files and machines into facts, and never judges."""

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
        "errors": "ObservationError",
        "gather": "observers",
        "locate.caller": "Running",
        "locate.layout": "EnvironmentNotFound EnvironmentUnreadable Layout",
        "locate.target": "choose",
        "model.reading.model_file": "read_bytes read_object",
        "model.reading.shapes": "Shape shape_of",
        "model.reading.source": "resolve",
        "recipe.assignments": "AssignmentError parse_assignments",
        "recipe.files": "RecipeFileError",
        "recipe.recipe": "Recipe read_recipe",
        "request": "Request Target",
        "sources": "Ask DOCUMENTS Environment SOURCES cut_short notes_of observe_environment platform_name",
    },
)
