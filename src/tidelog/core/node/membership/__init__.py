"""Being one broker of a cluster: session, registration, image, ISR proposals, controller."""
