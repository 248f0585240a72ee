"""The model of transactions: one transactional id, two partitions, two producers of the id."""
