"""Administrative requests: many topics, configs or reassignments in one request."""
