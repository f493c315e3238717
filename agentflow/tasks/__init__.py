"""Tasks: templates, their context and their execution; subtasks, saved workflows and programs that models write.

Reaches models, memory, files and runs through the ports of ``core`` only. Read ``service``
and ``runner``, which take one task from request to result, with ``registry`` (which task is meant), ``template`` (its texts,
inputs and output) and ``context_sources`` (what it is shown). ``functions`` are tasks with bodies; ``solve`` is for programs that models write.
"""
