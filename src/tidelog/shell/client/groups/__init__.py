"""Consumer groups in the client: administer groups, or join one as a member."""
