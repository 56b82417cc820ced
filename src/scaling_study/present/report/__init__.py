"""The report: one HTML file with every figure, run and claim, interactive without a network."""

from __future__ import annotations

from scaling_study.present.report.build import ReportFigure, build_report, report_page

__all__ = ["ReportFigure", "build_report", "report_page"]
