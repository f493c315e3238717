"""The records of a run: requested effects, published events, stored rows. All are frozen."""
