"""Commands around programs: servers and workers, schedules, notes, sessions, the index, settings and this machine."""
