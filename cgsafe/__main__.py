"""`python -m cgsafe`, and what the command `cgsafe` starts."""

import os
import sys
from typing import NoReturn

# Python puts the working directory first on the path here: nothing that lies in a checked folder may be imported.
if __name__ == "__main__":
    try:
        is_here = bool(sys.path) and os.path.abspath(sys.path[0] or os.curdir) == os.getcwd()
    except OSError:
        is_here = False
    if is_here and not getattr(sys.flags, "safe_path", False):
        del sys.path[0]


def start() -> NoReturn:
    """Run the command; an interrupt while it is still being imported is one as well."""
    try:
        from cgsafe.cli import run
    except KeyboardInterrupt:
        os._exit(130)
    run()


if __name__ == "__main__":
    start()
