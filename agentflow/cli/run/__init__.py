"""Commands that run programs: ``run``, ``eval``, ``resume``, ``demo`` and ``repl``."""
