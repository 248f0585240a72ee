"""What a broker stands on, made to fail: network, disk, metadata store, process."""
