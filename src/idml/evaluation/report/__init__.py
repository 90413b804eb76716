"""One evaluation as a page to read and to pass on: a single HTML file that needs nothing but a browser."""

from idml.evaluation.report.page import write_report

__all__ = ["write_report"]
