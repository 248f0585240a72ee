"""Services for requests of clients and followers."""
