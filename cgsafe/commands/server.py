"""`cgsafe server`: the language server, on standard input and output."""

from __future__ import annotations

import click

from cgsafe.commands.common import CLEAN


@click.command(short_help="Run the language server, for editors.")
def server() -> int:
    """Run the language server on standard input and output, for editors.

    It needs pygls: pip install 'cgsafe[lsp]'.
    """
    try:
        from cgsafe.lsp.server import make
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] not in ("pygls", "lsprotocol"):
            raise
        raise click.ClickException(f"the language server needs {error.name}: pip install 'cgsafe[lsp]'") from None
    make().start_io()
    return CLEAN
