"""Stored values, encoded and decoded: values of programs (``codec``), of annotated types (``data_adapter``), errors, notes
and conversations; and the digests that match a record with an effect (``record_values``)."""
