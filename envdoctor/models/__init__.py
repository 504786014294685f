"""Models by name and on disk: what a text names, the Hub cache, and JSON files that may be hostile."""

from envdoctor.door import door

__all__, __getattr__ = door(
    __name__,
    {
        "auto_map": "AUTO_MAP_FILES entries",
        "hub_cache": "CachedCommit cache_folder cached_repos commit_of_path matching",
        "json_object": "JsonObject JsonProblem LARGEST parse_object",
        "names": "NameProblem Named is_repo_name is_revision parse_name printable spellings",
    },
)
