"""The policy of a run: strands that track the sources of values, and the decision which effects are allowed.

Read ``guard`` (the guard before each effect), then ``labelled`` and ``strict`` (the strands) with their operations.
"""
