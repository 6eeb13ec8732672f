"""``python -m clustersim`` is the command ``clustersim``."""

from __future__ import annotations

import sys

from clustersim.cli.app import main

if __name__ == "__main__":
    sys.exit(main())
