"""The three temporary brokers of a lesson, separate from the cluster that the console shows."""
