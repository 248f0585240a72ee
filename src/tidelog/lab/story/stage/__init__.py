"""What a story is played on: brokers, disks, a network and a controller, all by hand."""
