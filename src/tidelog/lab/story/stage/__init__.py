"""The environment of a story: brokers, disks, network and controller, driven step by step."""
