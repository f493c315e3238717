"""Functions of texts in Python on values that may be in boxes, and on containers that branches share.

Read ``labelled`` (the twins of functions), then the others.
"""
