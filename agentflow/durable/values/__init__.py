"""Values as they are stored, and back: of programs (``codec``), of annotated types (``data_adapter``), errors, notes and conversations;
and the digests by which a record is matched with the effect that asks for it (``fingerprints``)."""
