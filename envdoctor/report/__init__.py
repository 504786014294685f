"""Reports: one :class:`~envdoctor.report.report.Report` and its renderings, their formats by name.

In: what a command found. Out: blocks, and from them the terminal, Markdown, HTML, JSON, SARIF, JUnit and what
forges read. Imports ``experiments`` and what is below it.
"""

from envdoctor.door import door

__all__, __getattr__ = door(
    __name__,
    {
        "facts_text": "document",
        "page": "choose_lang choose_width decide display_width harden_stdout Page",
        "report": "FORMATS Notice Report TargetOutcome UnknownFormatError load",
        "revision_section": "Cost Mended RevisionSection Side",
        "run_sections": "catalogue_text",
        "terminal_report": "render",
    },
)
