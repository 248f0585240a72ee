"""`tidelog repair`: check the folder of a stopped broker, and repair it from another one."""
