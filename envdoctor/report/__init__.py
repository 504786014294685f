"""Reports: one :class:`~envdoctor.report.report.Report` and its renderings, one module a format.

In: what a command found. Out: blocks, and from them the terminal, Markdown, HTML, JSON, SARIF, JUnit and what
forges read. Imports ``experiments`` and what is below it.
"""

from envdoctor.door import door

__all__, __getattr__ = door(
    __name__,
    {
        "color": "choose_lang choose_width decide harden_stdout",
        "facts_json": "document",
        "page": "Page display_width",
        "probe_section": "catalogue_text",
        "report": "Notice Report TargetOutcome UnknownFormatError load names",
        "revision_section": "Cost Mended RevisionSection Side",
        "terminal_report": "render",
    },
)
