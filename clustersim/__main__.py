"""``python -m clustersim`` is the command ``clustersim``."""

from __future__ import annotations

import sys


def main() -> int:
    """Run the command line of the process and return its exit code; Ctrl-C is heard also while modules are imported."""
    try:
        from clustersim.cli.app import main as run

        return run()
    except KeyboardInterrupt:
        from clustersim.errors import EXIT_INTERRUPTED, forget_interruption

        forget_interruption()
        if sys.stderr is not None:
            sys.stderr.write("interrupted\n")
        return EXIT_INTERRUPTED


if __name__ == "__main__":
    sys.exit(main())
