"""Consumer groups on a broker: their coordinator lives where their partition is led."""
