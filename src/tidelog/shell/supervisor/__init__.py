"""The processes of a cluster on one machine: started, watched, stopped."""
