"""Tasks: templates, their context and their execution; subtasks, saved workflows and programs that models write.

Reaches models, memory, files and runs through the ports of ``core`` only. Read ``service`` and ``runner``, which take one
task from request to result, with ``template_registry`` (finds the task), ``template`` (its texts, inputs and output) and
``context_sources`` (its reading material). ``template_functions`` are tasks with bodies; ``solve`` is for programs that models
write.
"""
