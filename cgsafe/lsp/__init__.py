"""The language server: what editors show. Only `server` needs pygls, which `pip install 'cgsafe[lsp]'` brings along."""
