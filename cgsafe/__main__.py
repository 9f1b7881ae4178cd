"""`python -m cgsafe` is the command `cgsafe`."""

import sys

from cgsafe.cli import main

if __name__ == "__main__":
    sys.exit(main())
