"""A small sample of made problems, and the script that writes it."""
