"""Text: search terms, suggestions for misspelled names, docstrings, and safe output on terminals."""
