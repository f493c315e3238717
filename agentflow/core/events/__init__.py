"""What happens in a run, as frozen records: effects that are asked for, events that observers get, rows that are stored."""
