"""Membership in the cluster: session, registration, image, ISR proposals, controller."""
