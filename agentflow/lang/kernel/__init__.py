"""The language as 25 kinds of node, to which texts of both surfaces are lowered; the generators of their code, and the machine that carries
out programs under a strict policy.

Read ``nodes`` (the kinds), ``lower_sexp`` (how S-expressions become nodes; texts in Python do in ``lang/python``), ``facts`` (facts about each
function that a node calls), ``reach`` (the variables that a part may change, and how it may be left), ``shapes`` (the labels of containers), then
``machine``; for code, ``generator``, ``text_generator`` for texts in Python, and ``cutting`` for large programs.
"""
