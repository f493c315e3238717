"""The policy of a run: strands that follow where values came from, and what may be done with them.

Read ``provenance`` (the guard at the door of effects), then ``labelled`` and ``strict`` (the strands) with their operations.
"""
