"""Passes: changes to a program between analysis and code generation, and facts read from it there.

A pass is a function of the analysed program, which it may change in place before code is written for it; ``passes=`` of
:func:`~agentflow.lang.program.compile_program` takes them.
"""
