"""Commands that read programs without running them: ``check``, ``fmt``, ``explore`` and ``lsp``."""
