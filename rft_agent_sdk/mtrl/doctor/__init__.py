"""Is it safe to launch a job? Every lesson that others paid a training run for, as a check with its fix.

`checks.CHECKS` is the list; `run.examine` goes through it. To add a check: write a function of a `Setup` that
returns what it found, or findings, and put it in the list of its file.
"""
