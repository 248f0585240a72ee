"""`tidelog verify --transactions`: transactional clients, and the journals of what they did."""
