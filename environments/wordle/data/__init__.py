"""The word lists and tables of Wordle, and the scripts that make them. See README.md here."""
