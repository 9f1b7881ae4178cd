"""The module index: what each file defines and imports, and how names resolve over the whole tree."""
