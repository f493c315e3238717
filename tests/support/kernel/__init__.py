"""The language as 25 kinds of node, to which programs of both surfaces are lowered, and a plain interpreter of them.

The interpreter is an oracle: it shares the front ends and the functions of the language with the compiler, and nothing of the code
that the compiler writes. ``interpreted`` makes a program that runs by it wherever a compiled program would run.
"""
