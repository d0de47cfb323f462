"""``python -m combutab`` is the ``combutab`` command."""

import sys

from combutab.cli import main

if __name__ == "__main__":
    sys.exit(main())
