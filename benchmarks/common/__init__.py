"""Shared by the studies: experiments and their jobs, rows and pages."""

from benchmarks.common.command import Arguments, Experiment, Job, Study
from benchmarks.common.page import Page
from benchmarks.common.results import Row

__all__ = ["Arguments", "Experiment", "Job", "Page", "Row", "Study"]
