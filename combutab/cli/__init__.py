"""The ``combutab`` command."""

from combutab.cli._app import app, main

__all__ = ["app", "main"]
