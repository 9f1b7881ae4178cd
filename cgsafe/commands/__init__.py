"""Commands of the command line, a module each; what only their work needs is imported when they run."""
