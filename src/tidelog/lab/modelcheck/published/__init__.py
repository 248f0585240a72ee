"""The truncation rules that Kafka has had: one small file each, one operator changed per step."""
