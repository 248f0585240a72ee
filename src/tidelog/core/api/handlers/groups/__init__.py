"""What clients ask group coordinators: membership, committed offsets, and how groups are doing."""
