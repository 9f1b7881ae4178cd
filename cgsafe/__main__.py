"""`python -m cgsafe`."""

from cgsafe.cli import run

if __name__ == "__main__":
    run()
