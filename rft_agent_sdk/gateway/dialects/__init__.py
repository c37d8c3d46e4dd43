"""Providers' wire formats, each turned into the same messages and back."""
