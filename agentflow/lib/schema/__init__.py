"""JSON Schema: checks data against schemas, and writes schemas for declarations of hosts. Read ``json_schema`` first."""
