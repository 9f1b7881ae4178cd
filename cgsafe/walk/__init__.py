"""The abstract walk: runs captured code on abstract values and states what happens there as events."""
