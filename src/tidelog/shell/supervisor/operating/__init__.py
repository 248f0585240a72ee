"""Control a running cluster of this machine from outside its `tidelog up`."""
