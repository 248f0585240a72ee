"""What Kafka brokers without security say of security: plainly that there is none."""
