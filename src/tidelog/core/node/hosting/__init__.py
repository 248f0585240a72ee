"""The replicas on this broker: their state, their logs, and the requests that wait for them."""
