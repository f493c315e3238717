"""JSON Schema: checks data against schemas, and writes schemas for what hosts declare. Read ``json_schema`` first."""
