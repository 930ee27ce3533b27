"""The report on a benchmark: tables, figures, a comparison with the paper, and a page to browse them."""

from sbtrpo.report.build import Report, build, watch

__all__ = ["Report", "build", "watch"]
