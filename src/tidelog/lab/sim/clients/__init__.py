"""Those who use the cluster, and remember what they were promised."""
