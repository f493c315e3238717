"""``agentflow lsp``: answers an editor's questions about programs, over the Language Server Protocol.

The answers are functions of a text and its survey (:mod:`agentflow.lang.survey`), one module per kind of question; the
room knows neither flows nor the terminal. Its packages come with the extra ``lsp``. Start reading at ``server.py``.
"""
