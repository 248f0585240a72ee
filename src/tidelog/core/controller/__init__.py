"""The cluster: who is alive, who leads what, as a state machine over the metadata store."""
