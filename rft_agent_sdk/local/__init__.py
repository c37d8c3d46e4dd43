"""A model on this machine: loaded, sampled and trained with torch. Needs the `[local]` extra.

Nothing is imported here; take what you need from the modules.
"""
