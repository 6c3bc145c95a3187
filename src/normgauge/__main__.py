"""`python -m normgauge`."""

import sys

from normgauge.cli import main

if __name__ == "__main__":
    sys.exit(main())
