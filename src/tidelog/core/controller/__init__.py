"""The controller: decides which brokers are alive and which lead, over the metadata store."""
