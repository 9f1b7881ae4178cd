"""`python -m cgsafe`."""

import os
import sys

# Python puts the working directory first on the path here: nothing that lies in a checked folder may be imported.
if sys.path and os.path.abspath(sys.path[0] or os.curdir) == os.getcwd() and not getattr(sys.flags, "safe_path", False):
    del sys.path[0]

from cgsafe.cli import run

if __name__ == "__main__":
    run()
