"""Tasks: templates, their context and their execution; subtasks, saved workflows and programs that models write."""
