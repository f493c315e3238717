"""Text: search terms, suggestions for misspelled names, docstrings, and what is safe to show on a terminal."""
