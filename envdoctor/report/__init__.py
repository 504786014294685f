"""Reports: one :class:`~envdoctor.report.report.Report` and its renderings, one module a format."""
