"""Reading many partitions at once, from whoever leads them."""
