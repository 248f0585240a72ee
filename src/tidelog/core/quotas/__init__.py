"""Client quotas: which one applies to a client, measured rates, and how long a client must wait."""
