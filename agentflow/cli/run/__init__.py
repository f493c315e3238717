"""Commands that run programs: ``run``, ``resume``, ``eval`` and ``cases``, ``demo`` and ``repl``."""
