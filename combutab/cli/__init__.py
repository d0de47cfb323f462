"""The ``combutab`` command."""

from combutab.cli._app import app, main
from combutab.cli._console import EXIT_CODES

__all__ = ["EXIT_CODES", "app", "main"]
